"""The searchers that are compared: ours, two baselines, and those of others as their sources define them."""
