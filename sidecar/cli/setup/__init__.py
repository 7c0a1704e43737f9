"""waitroom init and update-files: write the files of a first room, or of a new version."""
