"""What is left of a run whose process is killed at any moment: the same archive, and no answer paid for twice."""
