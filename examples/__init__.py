"""Example manifests, and the demo that reviews them."""
