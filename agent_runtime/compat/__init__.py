"""Interfaces of other systems, implemented on this runtime."""
