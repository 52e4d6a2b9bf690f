"""Write an audit as text, JSON or PolicyReports."""
