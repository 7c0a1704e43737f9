"""`make bench-jobs`: what a job costs from submission to result, beside the library `arq`.

target.py is what is called; ours.py and theirs.py are the two systems, theirs with arq_side.py,
which runs in an environment of its own; measure.py runs both in turn, idle.py looks at what they
cost when there is nothing to do; report.py writes it down.
"""
