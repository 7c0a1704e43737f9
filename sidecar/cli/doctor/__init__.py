"""Visits an installation from outside, as a browser would, and says which line is missing.

    visit.py  reply.py   asks, and keeps what came
    gate.py  cookie.py  surroundings.py
                         one function a check: looks at what came, and finds something or nothing
    findings.ini         what can be found, and what to do about it
    findings.py          prints

It knows nothing that a visitor could not see.
"""
