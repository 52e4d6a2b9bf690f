"""The controller: leader election and reconcilers."""
