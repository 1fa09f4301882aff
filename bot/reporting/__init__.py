"""Report on jobs: the status comment, the check run, how each job ended."""
