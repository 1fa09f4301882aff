"""The code index: definitions, calls, and search by words (docs/decisions/0069)."""
