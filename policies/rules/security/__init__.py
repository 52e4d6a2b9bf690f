"""Rules on what pods may reach."""
