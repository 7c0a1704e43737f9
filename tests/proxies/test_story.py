"""The story of tests/browser/ before the other proxies, and its end.

A slot that was given back is held for some seconds: no test may count slots after these.
"""

from tests.support import story
from tests.support.nginx_client import Visitor


def test_in_wait_enter(site, one_free, visitor):
    """One visitor enters, two wait with 1 and 2, and both later enter at their addresses."""
    story.play_story(site, visitor)


def test_the_last_page_frees_the_slot(site):
    """Also of somebody who came to no other."""
    site.admin("PATCH", "/rooms/shop", {"total_active_users": site.room()["active"] + 9})
    for paths in (["/", "/done"], ["/done"]):
        released = site.room()["counters"].get("released", 0)
        visitor = Visitor(site.url)
        replies = [visitor.get(path) for path in paths]
        assert [reply.status for reply in replies] == [200] * len(paths)
        assert b"Thank you" in replies[-1].body
        assert site.room()["counters"]["released"] == released + 1
