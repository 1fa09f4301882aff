"""Run an agent: runtime, loop, step, approvals and checkpoints."""
