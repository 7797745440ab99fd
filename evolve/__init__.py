"""The crank: the search loop, the proposers, the prompts and the command line."""
