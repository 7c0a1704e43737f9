"""The commands `waitroom init` and `update-files`, which write the files of an installation."""
