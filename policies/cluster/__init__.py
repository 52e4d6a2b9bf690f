"""The cluster snapshot that a review reads, and how it is kept."""
