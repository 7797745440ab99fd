"""One candidate in its process, from the judge's side: call it, and check its outputs and its side effects.

May import every package of evaluators/ from `worker` to `feedback`.
"""
