"""Codepilot's GitHub side: two entry points into one pipeline."""
