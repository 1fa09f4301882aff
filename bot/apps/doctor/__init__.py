"""`codepilot doctor`: check whether the bot can work here, and say how to fix what is missing."""
