"""The first message of a run, with untrusted text cleaned."""
