"""Agent files: the YAML as it was written, and its schema."""
