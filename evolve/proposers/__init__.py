"""Makes a child from a brief: a model, a person, a tuner or OpenEvolve proposes a kernel.

It imports `evolve.llm` and `evolve.state`, and no other package of `kbevolve.evolve`.
"""
