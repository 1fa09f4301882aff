"""What the first CodePilot promised, section by section, as our package keeps it.

Written from the promise, not from the code: public names only, a scripted model, and everything else real.
"""
