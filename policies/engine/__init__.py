"""Decide a review: exemptions, edits, checks, and what an UPDATE changes."""
