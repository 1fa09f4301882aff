"""From events to the messages that the model reads."""
