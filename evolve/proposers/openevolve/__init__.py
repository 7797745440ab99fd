"""OpenEvolve as a proposer: its own controller, prompts and database run in a process of their own; the models and the
judge are ours.

`controller` runs in that process and sends its two needs, a model's answer and a program's score, as questions;
`process` starts it; `proposer` answers the questions in their order and makes a child of every program. OpenEvolve is
seeded, so equal answers give equal questions: a resumed run replays the archive's answers to a new process first.
"""
