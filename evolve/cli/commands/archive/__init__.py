"""`kbevolve archive`, one file for each kind of command.

Only `upkeep` and `transport` write; nothing here imports torch.
"""
