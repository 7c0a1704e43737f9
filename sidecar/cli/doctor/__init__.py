"""waitroom doctor visits an installation from outside, as a browser would, and knows no more than a
visitor does: visit.py asks and keeps the responses; the checks in gate.py, cookie.py and
surroundings.py each yield findings; findings.ini has their texts.
"""
