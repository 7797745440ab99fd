"""The devices that kernels run on: their names, their free memory, and the locks under which they are shared.

May import worker, rejection and disk_cache.
"""
