"""A workflow run that went red: what failed in it, cut out of its jobs' logs, and how the workflow runs it."""
