"""`make bench`: Waitroom beside plain nginx and a Lua design, in paired, alternating runs.

systems.py and waitroom.py, lua.py are what is measured; workloads.py is what is asked of them;
runs.py asks; figures.py makes medians and ratios; report.py writes them down.
"""
