"""Compiled kernels: built beside the device's work, by confined compilers, each only once."""
