"""Records and results on a terminal or in a pipe."""
