"""credit."""
