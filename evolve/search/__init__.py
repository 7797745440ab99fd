"""The search of one run: the loop, the offspring in flight, budget, reasons to stop, contests.

It may import `llm`, `state`, `proposers` and `strategies` of `evolve`, and every package outside it.
"""
