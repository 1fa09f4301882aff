"""Publish a run's outcome as comment, commit and pull request."""
