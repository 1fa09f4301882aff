"""Register the bot's GitHub App from a manifest: `codepilot app create`."""
