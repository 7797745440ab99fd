"""Libraries of C++ and CUDA kernels: built by confined compilers while the device works, each only once.

May import worker, rejection, disk_cache, device, lint and sandbox.
"""
