"""A real Prometheus for the tests: its programs, and how to start it."""
