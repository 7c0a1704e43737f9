"""The opening as a calendar file, for visitors who come before it."""

import asyncio
import re

EVENT = {"name": "sale", "timezone": "Europe/Zurich", "opens_at": "2027-01-15 10:00"}
DRAWN = {**EVENT, "prequeue_from": "2027-01-15 09:30"}


async def fetch(site, query="", **headers):
    return await site.edge.get(f"/_waitroom/{site.room.name}/opening.ics{query}", headers=headers)


def unfold(text):
    """Return the fields of a calendar file by name, without the alarm's."""
    event = text.replace("\r\n ", "").partition("BEGIN:VALARM")[0]
    return dict(line.split(":", 1) for line in event.split("\r\n") if line)


async def test_the_opening_is_a_calendar_entry(replica):
    """With the time in UTC, the site's name and the address to come back to, in the visitor's
    language. The browser stores it and stays on the page."""
    site = await replica(events=[EVENT], site_name="Alpen, Rock; Tickets")
    headers = {"Accept-Language": "de", "X-Forwarded-Host": "shop.example"}
    headers["X-Forwarded-Proto"] = "https"
    reply = await fetch(site, "?next=/sale?a=1&b=2", **headers)
    assert (reply.status, reply.content_type, reply.charset) == (200, "text/calendar", "utf-8")
    assert reply.headers["Content-Disposition"] == 'attachment; filename="opening.ics"'
    assert reply.headers["Cache-Control"] == "no-store"
    text = await reply.text()
    assert text.endswith("END:VCALENDAR\r\n")
    assert "\r\nTRIGGER:-PT10M\r\n" in text
    fields = unfold(text)
    assert fields["DTSTART"] == "20270115T090000Z"
    assert fields["SUMMARY"] == r"Alpen\, Rock\; Tickets öffnet"
    assert fields["URL"] == "https://shop.example/sale?a=1&b=2"
    assert fields["DESCRIPTION"].startswith("https://shop.example/sale?a=1&b=2\\n\\n")


async def test_an_entry_says_that_places_are_drawn(replica):
    """No line is longer than 75 bytes, and none is cut within a letter."""
    site = await replica(events=[DRAWN], public_url="https://shop.example")
    body = await (await fetch(site, **{"Accept-Language": "ar"})).read()
    assert max(map(len, body.split(b"\r\n"))) <= 75
    for line in body.split(b"\r\n"):
        line.decode()
    assert "بالقرعة" in unfold(body.decode())["DESCRIPTION"]


async def test_without_an_event_there_is_no_file(replica):
    reply = await fetch(await replica())
    assert reply.status == 404
    assert re.search("has no event to come", await reply.text())


async def test_no_host_is_an_error_of_the_replica(replica):
    """A visitor may send any byte as the host."""
    site = await replica(events=[EVENT])
    reader, writer = await asyncio.open_connection(site.edge.host, site.edge.port)
    path = f"/_waitroom/{site.room.name}/opening.ics"
    writer.write(f"GET {path} HTTP/1.1\r\nHost: ".encode() + b"a\xff\r\nConnection: close\r\n\r\n")
    assert (await reader.readline()).split()[1] == b"200"
    assert b"://a?/" in (await reader.read()).replace(b"\r\n ", b"")
    writer.close()
