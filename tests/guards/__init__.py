"""Tests that count the operations for one request. Unlike a time, a count needs no idle machine.

Each bound is a little above the count when it was set. Lower it whenever the count falls. Raise it
only for a reason that the commit message gives.
"""
