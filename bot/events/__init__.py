"""Bytes to commands."""
