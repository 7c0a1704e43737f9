"""Counts sampled responses of the site in steps, and summarises the steps of a window."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping

#: The duration of a step, whose responses are counted together, in seconds.
STEP_S = 5
#: The longest window, in seconds. Steps that are older are never read.
LONGEST_S = 300
#: Each bucket of response times is wider than the one before by this factor.
_BUCKET_FACTOR = 1.1
#: The names of the counts that are not buckets: responses, errors, the sum of the response times in
#: ms, and the sum over all responses of the percentage that nginx reported (SHARE in reports.py).
RESPONSES, ERRORS, SUM_MS, PERCENT = "n", "e", "s", "p"


def find_bucket(seconds: float) -> str:
    """Return the name of the bucket that counts a response time."""
    return str(round(math.log(max(seconds, 0.001) * 1000, _BUCKET_FACTOR)))


class Counts(Counter[str]):
    """Counts of sampled responses: their number, errors, and a histogram of response times. A key
    is one of the names above or the name of a bucket."""

    @property
    def timed_responses(self) -> int:
        """The number of responses in buckets. Quick errors are in none."""
        return sum(number for _, number in self._find_buckets())

    @property
    def reported_share(self) -> float:
        """The share of responses that nginx reports, from 0 to 1."""
        return self[PERCENT] / 100 / self[RESPONSES] if self[RESPONSES] else 1.0

    @property
    def mean_s(self) -> float:
        """The mean response time in seconds; 0 without responses."""
        return self[SUM_MS] / 1000 / max(1, self.timed_responses)

    @property
    def error_share(self) -> float:
        """The share of errors, from 0 to 1."""
        return self[ERRORS] / max(1, self[RESPONSES])

    def percentile_s(self, share: float) -> float:
        """Return a percentile of the response times in seconds, exact to 5 %. For the p90, `share`
        is 0.9. Return 0 without responses."""
        rest = math.floor(share * self.timed_responses)
        for bucket, number in sorted(self._find_buckets()):
            rest -= number
            if rest < 0:
                return float(_BUCKET_FACTOR**bucket / 1000)
        return 0.0

    def _find_buckets(self) -> list[tuple[int, int]]:
        names = self.keys() - {RESPONSES, ERRORS, SUM_MS, PERCENT}
        return [(int(name), self[name]) for name in names]


def sum_counts(steps: Iterable[Mapping[str, int]]) -> Counts:
    total = Counts()
    for values in steps:
        total.update(values)
    return total
