"""The rule `spread`."""
