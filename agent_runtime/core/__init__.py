"""The values that every part of the library speaks of: events, outcomes, tasks, policies, errors. Pure."""
