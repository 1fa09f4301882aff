"""A demo on the local hub, and the hub alone."""
