"""Failed workflow runs: their failed steps, excerpts of their logs, and the workflow's definition of them."""
