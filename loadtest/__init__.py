"""Load tests and benchmarks: how fast, and whether the promises hold under it.

locustfile.py is for anybody's deployment; cluster.py (`make loadtest`) and bench/
(`make bench`) start what they measure themselves, on loopback, and stop by themselves.
"""
