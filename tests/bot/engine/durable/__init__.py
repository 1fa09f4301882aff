"""Tests of the durable engine."""
