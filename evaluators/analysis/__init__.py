"""What the judge finds out about a problem and a device before it judges kernels.

May import every package of evaluators/ from `worker` to `correctness`.
"""
