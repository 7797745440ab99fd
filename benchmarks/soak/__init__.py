"""Thousands of children through one judge, faults among them: no leak, nothing lost, every verdict right."""
