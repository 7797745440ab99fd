"""What each operator and technique gained so far, and the bandit that chooses by it."""
