"""Operators of the dashboard."""

from tests.support.replica import ADMIN_TOKEN


async def log_in(site, name="Night shift", token=ADMIN_TOKEN, headers=None):
    form = {"name": name, "token": token}
    return await site.ops.post(
        "/dashboard/login", data=form, headers=headers or {}, allow_redirects=False
    )
