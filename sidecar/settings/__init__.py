"""The settings: a TOML file, overridden by WAITROOM_* variables."""
