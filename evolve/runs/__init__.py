"""Runs: open and resume one, lock it, compare, judge folders of kernels and import their verdicts.

It may import every package of `evolve` except `exports`, `ask_tell`, `inspect_tasks`, `web` and `cli`, and
every package outside it.
"""
