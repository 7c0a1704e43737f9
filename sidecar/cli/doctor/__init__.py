"""The command `waitroom doctor`, which visits a site like a browser and reports mistakes."""
