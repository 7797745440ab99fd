"""Pages about an archive: `kbevolve browse` serves them, `kbevolve report` writes one file. Both only read."""
