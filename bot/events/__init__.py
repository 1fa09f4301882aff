"""Conversion of GitHub events to jobs."""
