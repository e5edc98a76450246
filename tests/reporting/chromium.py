"""A real browser for the tests: headless Chromium over its DevTools protocol, in sixty lines and one library (websockets)."""

import contextlib
import json
import shutil
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-extensions",
         "--disable-background-networking", "--disable-component-update", "--remote-debugging-port=0")  # fmt: skip


class Page:
    """One tab. `events` are all DevTools events so far."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._number = 0
        self.events: list[dict[str, Any]] = []
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One DevTools command and its answer."""
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
        """The value of an expression in the page; promises are awaited."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise AssertionError(found["exceptionDetails"])
        return found["result"].get("value")

    def open(self, path: Path, ready: str = "document.documentElement.dataset.ready === 'yes'") -> float:
        """Open a file and wait until it is ready; returns the seconds since navigation began."""
        return self.visit(path.resolve().as_uri(), ready)

    def visit(self, address: str, ready: str = "document.documentElement.dataset.ready === 'yes'") -> float:
        """Open an address and wait until it is ready; returns the seconds since navigation began."""
        start = time.perf_counter()
        self.call("Page.navigate", url=address)
        self.wait(f"location.href.startsWith({json.dumps(address)}) && {ready}")
        return time.perf_counter() - start

    def click(self, element: str) -> None:
        """Press and release the mouse on the middle of the element that an expression finds, as a person does."""
        # Chromium drops what is pressed before a page is painted for the first time.
        self.wait(f"performance.getEntriesByType('paint').length && {element}")
        x, y = self.js(
            f"(() => {{ const e = {element}; e.scrollIntoView({{block: 'center', behavior: 'instant'}});"
            " const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, key: str) -> None:
        """Press a key where the focus is."""
        self.wait("performance.getEntriesByType('paint').length")
        more = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **more)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def wait(self, condition: str, patience_s: float = 300) -> None:
        """Wait until an expression is true."""
        deadline = time.monotonic() + patience_s
        while not self.js(f"(() => {{ try {{ return Boolean({condition}); }} catch {{ return false; }} }})()"):
            assert time.monotonic() < deadline, f"never true: {condition}"
            time.sleep(0.02)

    def requests(self) -> list[str]:
        """All addresses that the page asked for."""
        self.js("0")
        return [e["params"]["request"]["url"] for e in self.events if e["method"] == "Network.requestWillBeSent"]

    def complaints(self) -> list[str]:
        """Errors that the page, its scripts or its policy raised."""
        self.js("0")
        thrown = [
            e["params"]["exceptionDetails"]["text"] for e in self.events if e["method"] == "Runtime.exceptionThrown"
        ]
        logged = [
            e["params"]["entry"]["text"]
            for e in self.events
            if e["method"] == "Log.entryAdded" and e["params"]["entry"]["level"] == "error"
        ]
        return thrown + logged + list(self.js("window.reportErrors || []"))


@contextlib.contextmanager
def browser() -> Iterator[Page]:
    """A fresh Chromium with one tab, ended with the block."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert program, "these tests look at the report in a real browser: apt-get install chromium"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [program, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            port_file, deadline = Path(profile) / "DevToolsActivePort", time.monotonic() + 300
            while not (port_file.exists() and port_file.read_text().count("\n")):
                assert process.poll() is None, "Chromium ended at once"
                assert time.monotonic() < deadline, "Chromium did not start within five minutes"
                time.sleep(0.05)
            port = port_file.read_text().splitlines()[0]
            tabs = json.load(urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list"))
            address = next(t["webSocketDebuggerUrl"] for t in tabs if t["type"] == "page")
            with connect(address, max_size=None, origin=None) as socket:
                yield Page(socket)
        finally:
            process.kill()
            process.wait()
