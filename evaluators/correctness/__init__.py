"""Whether a kernel is right: inputs, the fp64 truth, tolerances, and the examination of every output."""
