"""The audit as a page: one self-contained HTML file for people, and the same page served live."""
