"""Scenarios that break a part of the system, and check what visitors notice."""
