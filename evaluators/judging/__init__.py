"""The judge: truth, seeds, tolerances and verdicts for one device. It never imports a candidate.

May import every package of evaluators/ from `worker` to `timing`, and `evaluator`.
"""
