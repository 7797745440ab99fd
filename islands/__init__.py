"""Islands of kernels: niches, selection of parents, migration, credit of operators and techniques.

Pure functions and frozen values: no I/O, no clock, no global randomness. May import `archive.records` and
`configs.syntax` only.
"""
