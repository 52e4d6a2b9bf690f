"""The programs: webhook server, controller and command line."""
