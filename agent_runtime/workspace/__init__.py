"""The agent's files: confined access, and exact edits."""
