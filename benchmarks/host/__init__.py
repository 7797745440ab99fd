"""A host of several GPUs, simulated: how far its driver's one lock lets judges work side by side."""
