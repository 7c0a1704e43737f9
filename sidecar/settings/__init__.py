"""The settings: a TOML file, WAITROOM_* variables over it, and what may stand in them."""
