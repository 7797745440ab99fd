"""`kbevolve archive`, one file for each kind of command. Only `upkeep` writes; nothing here imports torch."""
