"""`codepilot demo`: a GitHub of one's own, a real project with a real bug, and the bot at work on it."""
