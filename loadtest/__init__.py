"""Load tests and benchmarks: how fast Waitroom is, and whether its promises hold under load.

locustfile.py puts load on any deployment. Measurements (`python -m loadtest NAME`) start everything
they need on loopback, and stop it at the end.
"""
