"""Model services behind one protocol.

For a new one, copy `anthropic.py` and add an entry to `catalog.py`. Retries and errors are in `retry`, abilities and
prices of models in `models`.
"""
