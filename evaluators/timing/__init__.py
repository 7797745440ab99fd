"""How fast a kernel is: paired rounds, two clocks, statistics, contests and baselines.

May import every package of evaluators/ from `worker` to `candidate`.
"""
