"""The transport of native tool calls: a model asks for calls by the means of its service."""
