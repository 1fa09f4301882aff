"""Runs as regression tests: record one, replay it, or compare what our code of today would ask.

What a run was told and what it did are in one file (`agent_runtime.providers.recording`): the exchanges with the model,
and beside them the agent's settings and the events of the session. `replaying` runs the recorded tasks again on a copy
of the workspace, with the recorded replies instead of a model. `comparing` runs nothing: it makes every request again
from the recorded events, which hold what the tools answered then.
"""
