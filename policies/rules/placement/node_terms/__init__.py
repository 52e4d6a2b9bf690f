"""The rule `node-terms`."""
