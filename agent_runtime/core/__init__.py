"""Values of every layer: events, outcomes, tasks, errors. Pure."""
