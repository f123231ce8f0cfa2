"""The viewer answers its own page alone, and text from files is shown, not run."""

import asyncio
import http.client

import pytest
from browser import CHROMIUM, open_page

from proba.viewer.gate import allowed, plain_markdown
from proba.viewer.server import Viewer

viser = pytest.importorskip("viser")
websockets = pytest.importorskip("websockets")


@pytest.fixture(scope="module")
def viewer():
    viewer = Viewer(port=18_571)
    yield viewer
    viewer.stop()


@pytest.mark.parametrize(
    ("host", "origin", "expected"),
    [
        ("127.0.0.1:80", None, True),
        ("localhost:80", "http://localhost:80", True),
        ("127.0.0.1:80", "http://evil.example", False),
        ("127.0.0.1:80", "null", False),
        ("127.0.0.1:80", "http://127.0.0.1:81", False),
        ("evil.example:80", None, False),
        ("127.0.0.1:81", None, False),
        (None, None, False),
    ],
)
def test_only_the_printed_address_is_allowed(host, origin, expected):
    assert allowed(host, origin, 80) is expected


def status(viewer: Viewer, host: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", viewer.server.get_port())
    connection.request("GET", "/", headers={"Host": host})
    return connection.getresponse().status


def test_pages_are_served_to_this_machine_by_its_own_name(viewer):
    port = viewer.server.get_port()
    assert status(viewer, f"127.0.0.1:{port}") == 200
    assert status(viewer, f"localhost:{port}") == 200
    assert status(viewer, f"evil.example:{port}") == 403


@pytest.mark.parametrize(("origin", "opens"), [(None, True), ("http://evil.example", False)])
def test_sockets_open_for_the_viewers_own_page(viewer, origin, opens):
    async def talk() -> bool:
        headers = {} if origin is None else {"Origin": origin}
        try:
            async with websockets.connect(
                f"ws://127.0.0.1:{viewer.server.get_port()}",
                additional_headers=headers,
                max_size=None,
                subprotocols=[f"viser-v{viser.__version__}"],
            ) as socket:
                await asyncio.wait_for(socket.recv(), 20)
                return True
        except websockets.exceptions.InvalidStatus as error:
            assert error.response.status_code == 403
            return False

    assert asyncio.run(talk()) is opens


HOSTILE = "<iframe srcdoc='<script>parent.x=1</script>'></iframe> {alert(1)} *bold* [a](javascript:alert(1))"


def test_markup_is_only_text():
    shown = plain_markdown(HOSTILE)
    assert not set("<>{}[]()*`!\\'\"=/") & set(shown)
    assert plain_markdown("fov50 · iteration 3 of 60 · 45.0°") == "fov50 · iteration 3 of 60 · 45.0°"


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_hostile_text_is_shown_as_it_is_in_the_browser(viewer):
    handle = viewer.server.gui.add_markdown(plain_markdown(HOSTILE))
    try:
        with open_page(viewer.url) as page:
            page.get_by_text("<iframe srcdoc=").wait_for()
            assert page.get_by_text("{alert(1)} *bold* [a](javascript:alert(1))").count() == 1
            assert page.locator("iframe").count() == 0
    finally:
        handle.remove()
