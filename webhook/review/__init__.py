"""Review, fix and replay manifests offline."""
