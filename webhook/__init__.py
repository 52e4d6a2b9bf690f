"""The running programs: the server at the door, the watchers that feed it, and the command line."""
