"""One kind of event a file."""
