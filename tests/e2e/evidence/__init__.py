"""Evidence: random objects, what gpugate says of them, and what the real components do with them."""
