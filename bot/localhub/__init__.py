"""A GitHub in one process, for the demo and the tests."""
