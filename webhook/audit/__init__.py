"""Audit the workloads of a cluster."""
