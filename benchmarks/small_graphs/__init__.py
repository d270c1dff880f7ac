"""Programs with small graphs whose values are read at once, each written as a user writes it: run(steps)."""
