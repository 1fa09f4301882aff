"""Store jobs durably and hand them to workers."""
