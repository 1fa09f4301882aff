"""Ways to run programs that can hurt nobody."""
