"""The one REST and GraphQL client."""
