"""Worker processes: how they are started and confined, and the memory that they share with the judge.

May import worker, rejection, disk_cache and device.
"""
