"""Finds how many visitors the site can bear, and keeps a ceiling below the room's cap."""
