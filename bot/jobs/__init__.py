"""The parts of one job that pipeline, control and reporting share."""
