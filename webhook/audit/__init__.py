"""The audit: what the policies make of the workloads that are there, for people and machines to read."""
