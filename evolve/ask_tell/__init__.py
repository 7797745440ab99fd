"""ask_tell."""
