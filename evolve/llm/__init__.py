"""Asks a language model: one request with retries and a rate limit; replies are cached, recorded and replayed.

It imports nothing else of `kbevolve.evolve`.
"""
