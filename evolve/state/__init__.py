"""What a run knows, rebuilt from the facts of its archive, and the choices that rest on that knowledge alone.

It may import `llm` of `evolve`, and `archive`, `configs`, `evaluators` and `islands`.
"""
