"""The rules, one package or module each, grouped by theme."""
