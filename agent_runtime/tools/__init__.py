"""The tools that control code may call; one family a file."""
