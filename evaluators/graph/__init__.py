"""The graph of a problem's reference: traced without data, in canonical forms, cut into regions.

May import every package of evaluators/ from `worker` to `analysis`.
"""
