"""The Kubernetes API client: requests, list and watch, discovery and Events."""
