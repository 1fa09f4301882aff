"""Model services behind one protocol; one a file."""
