"""What is true: the judge decides whether a kernel is correct and how much faster it is; workers hold the kernels."""
