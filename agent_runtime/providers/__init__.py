"""Model services behind one protocol.

To add one, copy `anthropic.py` and give it an entry in `catalog.py`. A provider of one's own translates requests for
its service, events of the answer into chunks, and errors into `retry.Failure`. Retries and error texts (`retry`) and
the abilities and prices of models (`models`) are shared.
"""
