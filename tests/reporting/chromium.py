"""A browser for the tests: headless Chromium, controlled over its DevTools protocol with websockets."""

import contextlib
import json
import shutil
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

from tests.waiting import wait_for

FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-extensions",
         "--disable-background-networking", "--disable-component-update", "--remote-debugging-port=0")  # fmt: skip


class Page:
    """A tab; `events` are all DevTools events so far."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._number = 0
        self.events: list[dict[str, Any]] = []
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a DevTools command and return its result."""
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": params}))
        while True:
            message = json.loads(self._socket.recv(timeout=300))
            if message.get("id") == self._number:
                if "error" in message:
                    raise AssertionError(f"{method}: {message['error']}")
                return message["result"]
            self.events.append(message)

    def js(self, expression: str) -> Any:
        """Evaluate an expression in the page; promises are awaited."""
        found = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in found:
            raise AssertionError(found["exceptionDetails"])
        return found["result"].get("value")

    def open(self, path: Path) -> None:
        """Open a file and wait until its script is ready."""
        self.visit(path.resolve().as_uri())

    def visit(self, address: str) -> None:
        """Open a URL and wait until its script is ready."""
        self.call("Page.navigate", url=address)
        ready = "document.documentElement.dataset.ready === 'yes'"
        self.wait(f"location.href.startsWith({json.dumps(address)}) && {ready}")

    def click(self, element: str) -> None:
        """Click the middle of the element that an expression returns."""
        # Chromium drops clicks before the first paint of a page.
        self.wait(f"performance.getEntriesByType('paint').length && {element}")
        x, y = self.js(
            f"(() => {{ const e = {element}; e.scrollIntoView({{block: 'center', behavior: 'instant'}});"
            " const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call(
                "Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1
            )

    def press(self, key: str) -> None:
        """Press a key on the focused element."""
        self.wait("performance.getEntriesByType('paint').length")
        more = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **more)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def wait(self, condition: str, patience_s: float = 300) -> None:
        """Wait until an expression is true."""
        asked = (
            f"(() => {{ try {{ return Boolean({condition}); }} catch {{ return false; }} }})()"
        )
        wait_for(lambda: self.js(asked), condition, patience_s)

    def requests(self) -> list[str]:
        """All URLs that the page requested."""
        self.js("0")
        return [
            e["params"]["request"]["url"]
            for e in self.events
            if e["method"] == "Network.requestWillBeSent"
        ]

    def complaints(self) -> list[str]:
        """Errors that the page, its scripts or its content security policy raised."""
        reported = self.js("window.reportErrors || []")
        thrown = [e["params"] for e in self.events if e["method"] == "Runtime.exceptionThrown"]
        logged = [e["params"]["entry"] for e in self.events if e["method"] == "Log.entryAdded"]
        errors = [entry["text"] for entry in logged if entry["level"] == "error"]
        return [params["exceptionDetails"]["text"] for params in thrown] + errors + reported


@contextlib.contextmanager
def browser() -> Iterator[Page]:
    """A new Chromium with one tab, which ends with the block."""
    program = (
        shutil.which("chromium")
        or shutil.which("chromium-browser")
        or shutil.which("google-chrome")
    )
    assert program, "these tests need a browser: apt-get install chromium"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [program, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            port_file = Path(profile) / "DevToolsActivePort"
            wait_for(
                lambda: port_file.exists() and port_file.read_text().count("\n"),
                "Chromium's start",
                300,
                process,
            )
            port = port_file.read_text().splitlines()[0]
            tabs = json.load(urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list"))
            address = next(t["webSocketDebuggerUrl"] for t in tabs if t["type"] == "page")
            with connect(address, max_size=None, origin=None) as socket:
                yield Page(socket)
        finally:
            process.kill()
            process.wait()
