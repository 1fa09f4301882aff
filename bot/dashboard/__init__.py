"""Read-only web pages about the runs of a bot."""
