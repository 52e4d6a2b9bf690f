"""Rules on whose workloads hold GPUs, and whether they use them."""
