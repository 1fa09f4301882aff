"""Operator settings: from the environment and a file to checked values."""
