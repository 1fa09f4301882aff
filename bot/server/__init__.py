"""The programs: webhook server, action, chat, doctor, demo, setup; each composed from the packages below."""
