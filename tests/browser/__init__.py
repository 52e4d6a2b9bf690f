"""The audit's page in a real browser."""
