"""The first failures in a log, cut out of what testers, compilers and linters print: one tool a file."""
