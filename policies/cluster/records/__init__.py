"""Records of the objects of a snapshot: small and frozen, one module per API group."""
