"""The bot's server process."""
