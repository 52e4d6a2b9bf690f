"""The controller: the second program, which looks at what is there and writes what the door may not."""
