"""Find out which pods must start together, and how far a gang has come."""
