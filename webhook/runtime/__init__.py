"""What all programs share: log, rate limit, lifecycle, times and errors."""
