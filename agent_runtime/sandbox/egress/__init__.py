"""The only network access of a sandbox: a proxy that passes TLS to listed hosts and refuses everything else."""
