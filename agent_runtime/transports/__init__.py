"""Transports between the model and the library: one package for each way to read a reply."""
