"""What a rule is, and what the engine returns."""
