"""GitHub, workspaces and the agent in memory, with which `tests.seam` runs whole jobs."""
