"""Read any kind of workload as sets of equal pods and their containers."""
