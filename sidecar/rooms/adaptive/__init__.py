"""Finds how many visitors the site can serve, and keeps the room's cap below that number."""
