"""Git: mirrors of repositories, workspaces of jobs, their changes, commits and pushes, and the blob store."""
