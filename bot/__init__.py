"""Codepilot's GitHub side: two doors into one corridor."""
