"""How much is measured, and all that was."""

from dataclasses import dataclass, field

from loadtest.history.command import Made
from loadtest.history.load import Loaded
from loadtest.history.lookups import Plan, Sample, Taken, Times
from loadtest.history.recording import Recording
from loadtest.history.stays import DAYS


@dataclass(frozen=True, slots=True)
class Amount:
    stays: int = 10_000_000
    rooms: int = 1000
    partitions: int = 128
    #: The share of the stays that have events, each room's latest.
    with_events: float = 0.03
    #: Of each kind and room.
    lookups: int = 1000
    #: And while a recorder writes, whose stays make the queue longer all the time.
    written: int = 200
    restarts: int = 5
    #: Look-ups of each kind and room after a restart.
    cold: int = 60
    #: In the live room that is asked in the store.
    waiting: int = 5000
    #: Of reports: how long ago they begin.
    periods: tuple[str, ...] = ("24h", f"{DAYS + 1}d")
    #: That a recorder writes in one run, and the runs.
    events: int = 100_000
    rounds: int = 3
    databases: tuple[str, ...] = ("sqlite", "mariadb", "postgresql")


WHOLE = Amount()
QUICK = Amount(
    stays=300_000, rooms=100, lookups=200, written=50, restarts=2, cold=20, events=20_000, rounds=1
)  # fmt: skip


@dataclass
class Result:
    amount: Amount
    loaded: Loaded
    samples: list[Sample]
    disk_mb: float
    #: Look-ups after restarts: the first of each kind and room, and all.
    first: Taken = field(default_factory=dict)
    cold: Taken = field(default_factory=dict)
    warm: Taken = field(default_factory=dict)
    #: While a recorder writes into the hot room, and what it wrote, events/s.
    written: Taken = field(default_factory=dict)
    written_per_s: float = 0
    live: Times | None = None
    #: By room.
    explained: list[tuple[str, Plan]] = field(default_factory=list)
    recorded: dict[str, list[Recording]] = field(default_factory=dict)
    bytes_per_event: float = 0
    reports: list[Made] = field(default_factory=list)
    #: The machine's load when each part began.
    loads: dict[str, float] = field(default_factory=dict)

    def problems(self) -> list[str]:
        return [
            f"{title} room, {plan.lookup}: partitions {plan.partitions} are read, not one"
            for title, plan in self.explained
            if not plan.is_one_partition
        ]
