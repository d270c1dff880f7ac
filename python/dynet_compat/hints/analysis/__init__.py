"""What a script does, found without running it."""
