"""The tuner of tunables beside those of libraries, at equal evaluations."""
