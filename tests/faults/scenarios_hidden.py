"""Simulated sales in which some tabs are hidden, so that browsers let them poll once a minute."""

import time

from sidecar.storage.redis.connect import close, connect
from tests.faults.verdict import Row
from tests.faults.world import Scale
from tests.support.redis_servers import RedisServer
from tests.support.simulation import HIDDEN, MOST_IDLE, MOST_LATE, SaleResult, hidden_sale, simulate


async def hidden_tabs(scale: Scale) -> list[Row]:
    """Simulate sales with 200 slots and about 1,700 visitors."""
    shares = HIDDEN[:1] if scale.quick else HIDDEN
    began = time.monotonic()
    with RedisServer() as server:
        redis = connect(server.url, timeout_s=10)
        try:
            results = await simulate(redis, [hidden_sale(share) for share in shares])
        finally:
            await close(redis)
    seconds = (time.monotonic() - began) / len(shares)
    return [_row(share, sale, seconds) for share, sale in zip(shares, results, strict=True)]


def _row(share: float, sale: SaleResult, seconds: float) -> Row:
    row = Row(
        f"a simulated sale, {share:.0%} of the tabs hidden", requests=sale.polls, seconds=seconds
    )
    late = sorted(sale.late_polls)
    third = sum(polls > 2 for polls in late)
    row.notes.append(
        f"of {len(late)} hidden tabs, {len(late) - third} were in within two of their own polls"
        " after the first who joined later and polls as told"
    )
    row.notes.append(
        f"{third} took more, {late[-1]} at most; a tenth of all phones slept for 5 min"
    )
    row.notes.append(f"idle while somebody waited: {sale.idle:.2%} of the slots' time")
    row.notes.append(f"{sale.no_shows} calls found nobody")
    if third > len(late) * MOST_LATE:
        row.broken.append(f"{third} of {len(late)} were in after more than two polls")
    if sale.idle >= MOST_IDLE:
        row.broken.append(f"{sale.idle:.2%} of the slots were idle")
    return row
