"""The bot's value types: jobs, commands, access, errors. Pure; imports nothing else of `bot`."""
