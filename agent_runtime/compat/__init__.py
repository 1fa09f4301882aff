"""Faces of other systems on this runtime."""
