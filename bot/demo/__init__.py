"""`codepilot demo`: a local GitHub, a real project with a real bug, and the bot that fixes it."""
