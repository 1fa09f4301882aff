"""Ways to run programs in isolation."""
