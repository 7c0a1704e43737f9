"""What the doors are, as an OpenAPI 3.1 document: a module for each group of them, and one for
what they have in common."""
