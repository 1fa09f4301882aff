"""Changes to threads, branches, checks and accounts, with the webhooks that they send."""
