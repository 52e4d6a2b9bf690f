"""Rules on which nodes pods may run on."""
