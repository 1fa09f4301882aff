"""Child runs: an agent's tasks for other agents, each with a share of its budget and a copy of its workspace."""
