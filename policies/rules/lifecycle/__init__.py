"""Rules on how workloads start, run and end."""
