"""The OpenAPI 3.1 document, which is built from the declared endpoints and the settings' models."""
