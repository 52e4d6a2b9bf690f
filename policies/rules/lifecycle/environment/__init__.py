"""The rule `environment`."""
