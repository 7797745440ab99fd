"""Text analysis of kernel files: canonical form, active code, similarity."""
