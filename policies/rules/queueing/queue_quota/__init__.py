"""The rule `queue-quota`."""
