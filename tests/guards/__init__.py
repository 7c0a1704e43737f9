"""What is done for one request, counted: a bound on work needs no quiet machine.

A bound is a little above what was counted when it was set. Lower it with every gain; raise it only
for a reason that the commit says.
"""
