"""The first message of a run, and the cleaning of everything that strangers wrote in it."""
