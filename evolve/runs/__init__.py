"""Runs: open and resume one, lock it, export, compare, judge folders of kernels and import their verdicts.

It may import every package of `evolve` except `ask_tell` and `cli`, and every package outside it.
"""
