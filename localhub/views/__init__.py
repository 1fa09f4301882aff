"""Render values as GitHub's JSON."""
