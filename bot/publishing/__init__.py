"""Outcome to comment, commit and pull request."""
