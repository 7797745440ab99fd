"""candidate."""
