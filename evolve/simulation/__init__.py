"""Searchers compared on landscapes with known speeds, with a simulated language model; nothing is compiled or timed.

It may import `state`, `proposers` and `strategies` of `evolve`. `landscape` defines what a landscape is; `ladder` (with
`ladders`, the named ones) and `measured` are the two kinds; `moves` turns one program into another; `simulated_llm`
writes the children; `searcher` runs one search; `tournament` compares searchers, and `latency` compares lookaheads.
"""
