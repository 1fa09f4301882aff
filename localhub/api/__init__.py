"""Requests to the API: routes, fields, authentication, error answers."""
