"""Show an audit as an HTML page."""
