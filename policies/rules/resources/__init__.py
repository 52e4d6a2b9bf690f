"""Rules on what pods request: accelerators, memory, CPU and GPU memory."""
