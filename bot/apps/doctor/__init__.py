"""`codepilot doctor`: whether the bot could work here, and what mends it where it could not."""
