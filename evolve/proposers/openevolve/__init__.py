"""OpenEvolve as a guest: its own controller, prompts and database, in a process of its own; model and judge are ours.

It decides; we answer. `inside` runs there and turns its two needs, an answer of a model and a score of a program, into
questions; `guest` is that process as seen from here; `proposer` answers the questions in the order in which they come,
and makes a child of every program. OpenEvolve is seeded, so it asks the same again when it gets the same answers: a
resumed run tells a new process what the archive knows, and goes on where that ends.
"""
