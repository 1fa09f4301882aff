"""The one way out of a sandbox: a proxy that lets TLS pass to listed hosts, and nothing else to nowhere else."""
