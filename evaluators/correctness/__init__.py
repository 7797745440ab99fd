"""Whether an output is correct: inputs, the truth in fp64, tolerances and sketches.

May import every package of evaluators/ from `worker` to `builds`.
"""
