"""Where candidates run: worker processes, what confines them, and the memory that they share with the judge."""
