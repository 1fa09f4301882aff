"""What may stand in an agent file: the YAML as it was written, and the schema that it must fit."""
