"""`make bench-limits`: what a decision about a rate limit costs, beside the `limits` library.

cases.py is what is measured, http.py how replicas are asked; measure.py runs it; race.py counts
what is let through; report.py writes it down.
"""
