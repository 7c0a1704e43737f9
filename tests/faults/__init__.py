"""Scenarios that break a part of the system, and judge what visitors notice."""
