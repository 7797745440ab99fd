"""The starting kernels of a run, and kernels in files that the user names."""
