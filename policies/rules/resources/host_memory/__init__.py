"""The rule `host-memory`."""
