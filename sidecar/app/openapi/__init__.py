"""The OpenAPI 3.1 document, made of the declared endpoints and of the settings."""
