"""Every speed claim of the project, measured; `make bench` runs them all."""
