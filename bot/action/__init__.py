"""The second entry point, as a workflow's step: the run's event becomes a delivery, and the end the step's outputs."""
