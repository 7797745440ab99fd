"""How fast a kernel is: paired rounds, two clocks, statistics, contests and baselines."""
