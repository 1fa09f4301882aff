"""Live shells, and their bytes made readable."""
