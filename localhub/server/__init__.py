"""The HTTP server: the API, git, Git LFS, attachments, logs and artifacts."""
