"""waitroom doctor: visit an installation from outside, as a browser does, and report mistakes."""
