"""`waitroom init` and `waitroom update-files`: the files of a first room, and of a new version."""
