"""Counts sampled responses of the site, and summarises those of the last seconds."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping

#: How long a step of counts is, in seconds.
STEP_S = 5
#: The longest window, and so how far back counts are read, in seconds.
LONGEST_S = 300
#: Each bucket of response times is this much wider than the one before.
_GROWTH = 1.1
#: Names of counts beside the buckets: responses, errors, the sum of response times in ms, and the
#: sum of the percentages of which the responses are samples.
RESPONSES, ERRORS, SUM_MS, PERCENT = "n", "e", "s", "p"


def find_bucket(seconds: float) -> str:
    """Return the name of a response time's bucket, whose bounds are 10 % apart."""
    return str(round(math.log(max(seconds, 0.001) * 1000, _GROWTH)))


class Counts(Counter[str]):
    """Counts of sampled responses: their number, errors, and a histogram of response times. The
    other names are buckets."""

    @property
    def timed(self) -> int:
        """The number of responses with a time. A quick error has none."""
        return sum(number for _, number in self._find_buckets())

    @property
    def share(self) -> float:
        """The share of responses that nginx reports, from 0 to 1."""
        return self[PERCENT] / 100 / self[RESPONSES] if self[RESPONSES] else 1.0

    @property
    def mean_s(self) -> float:
        """The mean response time in seconds; 0 without responses."""
        return self[SUM_MS] / 1000 / max(1, self.timed)

    @property
    def error_share(self) -> float:
        """The share of errors, from 0 to 1."""
        return self[ERRORS] / max(1, self[RESPONSES])

    def percentile_s(self, share: float) -> float:
        """Return a percentile of the response times in seconds, such as 0.9 for the p90, within
        5 %. Return 0 without responses."""
        rest = math.floor(share * self.timed)
        for bucket, number in sorted(self._find_buckets()):
            rest -= number
            if rest < 0:
                return float(_GROWTH**bucket / 1000)
        return 0.0

    def _find_buckets(self) -> list[tuple[int, int]]:
        names = self.keys() - {RESPONSES, ERRORS, SUM_MS, PERCENT}
        return [(int(name), self[name]) for name in names]


def sum_counts(steps: Iterable[Mapping[str, int]]) -> Counts:
    """Return the sum of several steps."""
    total = Counts()
    for values in steps:
        total.update(values)
    return total
