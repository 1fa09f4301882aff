"""The job, its states, its queue and its worker."""
