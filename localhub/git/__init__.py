"""Read and write bare git repositories."""
