"""The 60 children, 15 for each of four problems, made of templates: sizes of tiles, and edits that break them."""
