"""Commands and repository events that act on other jobs: approve, deny, stop, retry, continue, status, undo."""
