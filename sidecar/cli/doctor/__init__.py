"""waitroom doctor: visit an installation from outside, as a browser does. visit.py sends the
requests and stores the responses; the checks in gate.py, cookie.py and surroundings.py yield
findings, whose texts are in findings.ini.
"""
