"""The machine that reports name in tests."""

from loadtest.machine import Machine

MACHINE = Machine("a CPU", 2, 4.0, "Linux 6", "3.11", "1.22", "7.0")
