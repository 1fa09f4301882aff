"""Build the messages that the model reads from a session's events."""
