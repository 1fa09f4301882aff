"""Entry point of a workflow step: handles the run's event, and writes the step's outputs."""
