"""Model services behind one protocol; one a file.

To add one, copy `anthropic.py` and give it an entry in `catalog.py`. What a provider of one's own has to say is: the
request as its service reads it, what each event of the answer adds to the reply, and how its errors map to
`faults.Failure`. When to try again, what to tell people and what it cost is shared: `retry`, `faults`, `prices`.
"""
