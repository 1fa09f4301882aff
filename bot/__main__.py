"""The `codepilot` command."""

import sys


def main() -> None:
    """Run the command line."""
    sys.exit("codepilot: no command yet")
