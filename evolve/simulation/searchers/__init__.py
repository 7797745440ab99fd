"""The laws that are compared: ours, and those of others as their sources define them."""
