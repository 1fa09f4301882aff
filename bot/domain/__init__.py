"""The values of the bot: jobs, commands, access, errors. Pure; imports nothing else of `bot`."""
