"""A machine for test reports, which say on what hardware and versions a load test ran."""

from loadtest.machine import Machine

MACHINE = Machine("a CPU", 2, 4.0, "Linux 6", "3.11", "1.22", "7.0")
