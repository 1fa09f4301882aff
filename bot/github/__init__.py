"""GitHub's REST and GraphQL APIs, as the bot uses them."""
