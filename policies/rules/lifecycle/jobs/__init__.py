"""The rule `jobs`."""
