"""Rules on pods that must start together."""
