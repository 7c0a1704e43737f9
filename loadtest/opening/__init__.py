"""What an opening costs with 100,000 in the pre-queue: how long a script holds Redis, how soon
everybody knows their place (docs/benchmark.md).

Read in the order `held`, `measure`, `report`.
"""
