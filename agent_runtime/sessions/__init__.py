"""Where a session's events are kept."""
