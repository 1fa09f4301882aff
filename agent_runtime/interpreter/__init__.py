"""The control block's interpreter: a worker process that holds no host objects."""
