"""Changes the values of the tunables that kernels declare; it needs no model."""
