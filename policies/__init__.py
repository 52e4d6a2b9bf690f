"""Decide what happens to a GPU workload: pure functions of an object, the policies in force and a cluster snapshot."""
