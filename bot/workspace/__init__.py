"""Mirror, trusted git directory, checkout, change."""
