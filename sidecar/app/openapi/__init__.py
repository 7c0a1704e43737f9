"""The OpenAPI 3.1 document, made from the declared endpoints and the settings."""
