"""What a replica says of itself."""

from __future__ import annotations

import pytest

from sidecar.app import without_secrets


@pytest.mark.parametrize(
    ("store", "said"),
    [
        ("memory://", "memory://"),
        ("redis://127.0.0.1:6379/0", "redis://127.0.0.1:6379/0"),
        ("rediss://me:p%40ss@store:6380/2?ssl_cert_reqs=none", "rediss://store:6380/2"),
        ("unix://me:secret@/run/redis.sock?db=1&password=secret", "unix:///run/redis.sock"),
        (
            "redis+sentinel://u:secret@a:1,b:2/main/0?sentinel_password=secret@x",
            "redis+sentinel://a:1,b:2/main/0",
        ),
        ("redis+cluster://u:se@cret@a:1,b:2", "redis+cluster://a:1,b:2"),
    ],
)
def test_no_secret_is_logged(store, said):
    assert without_secrets(store) == said
    assert "secret" not in said
