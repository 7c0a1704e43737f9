"""Load tests and benchmarks: how fast, and whether the promises hold under it.

locustfile.py is for anybody's deployment. Measurements (`python -m loadtest NAME`) start everything
on loopback, and stop by themselves.
"""
