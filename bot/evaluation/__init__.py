"""`codepilot eval`: the bot on the owner's own merged changes, with several configurations."""
