"""How many children an hour one device judges, beside KernelBench's recipe on the very same children."""
