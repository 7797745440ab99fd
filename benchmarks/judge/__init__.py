"""How far the judge's numbers can be trusted: one module for each question, `python -m benchmarks.judge NAME`."""
