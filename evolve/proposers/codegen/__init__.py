"""Writes kernels with a language model: the prompts, and the parsing of its ideas, edits and files."""
