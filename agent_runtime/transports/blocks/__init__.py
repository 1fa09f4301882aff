"""The control-block transport: prose, a block of Python, payload fences, a completion. Pure."""
