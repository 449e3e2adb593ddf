"""Headless Chromium over its DevTools pipe: just enough to look at a page as a reader would. Needs nothing installed
but the browser."""

import fcntl
import json
import os
import select
import shutil
import signal
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")


def find() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One browser with one page. `console` holds errors and warnings, `requests` every address the page asked for."""

    def __init__(self, profile: Path) -> None:
        program = find()
        assert program is not None
        self.downloads = profile / "downloads"
        self.downloads.mkdir(parents=True)
        self.console: list[str] = []
        self.requests: list[str] = []
        self._next, self._buffer = 0, b""
        to_child, self._write = _pipe()
        self._read, from_child = _pipe()
        options = "--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --hide-scrollbars"
        arguments = [program, *options.split(), "--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"]
        quiet = os.open(os.devnull, os.O_RDWR)
        actions = [(os.POSIX_SPAWN_DUP2, to_child, 3), (os.POSIX_SPAWN_DUP2, from_child, 4)]
        actions += [(os.POSIX_SPAWN_DUP2, quiet, stream) for stream in (0, 1, 2)]
        self.process = os.posix_spawn(program, arguments, os.environ, file_actions=actions, setsid=True)
        for end in (to_child, from_child, quiet):
            os.close(end)
        targets = self._call("Target.getTargets", session=None)["targetInfos"]
        target = next(t["targetId"] for t in targets if t["type"] == "page")
        attached = self._call("Target.attachToTarget", session=None, targetId=target, flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        where = {"behavior": "allow", "downloadPath": str(self.downloads)}
        self._call("Browser.setDownloadBehavior", session=None, **where)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._call(method, session=self.session, **parameters)

    def open(self, page: Path | str, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Opens a file or an address, and waits for its first chart."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.resize(width, height)
        self.call("Page.navigate", url=page if isinstance(page, str) else page.resolve().as_uri())
        self.wait("document.readyState === 'complete' && !!document.querySelector('figure svg')")

    def resize(self, width: int, height: int = 900) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def js(self, expression: str) -> Any:
        """The value of an expression in the page; an exception there is one here."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise AssertionError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def wait(self, condition: str, seconds: float = 20.0) -> None:
        end = time.monotonic() + seconds
        while not self._is(condition):
            assert time.monotonic() < end, f"never true: {condition}"
            time.sleep(0.05)

    def _is(self, condition: str) -> bool:
        """Whether it holds; not yet where the page is left while it is asked."""
        try:
            return bool(self.js(condition))
        except AssertionError as error:
            if "navigated" not in str(error):
                raise
            return False

    def key(self, name: str) -> None:
        for kind in ("keyDown", "keyUp"):
            codes = {"Tab": 9, "Enter": 13, "ArrowLeft": 37, "ArrowRight": 39, "End": 35, "Home": 36}
            text = {"text": "\r"} if name == "Enter" and kind == "keyDown" else {}
            self.call(
                "Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=codes[name], **text
            )

    def hover(self, x: float, y: float) -> None:
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def saved(self, click: str) -> tuple[str, str]:
        """Runs an expression that starts a download: the file's name and text."""
        before = set(self.downloads.iterdir())
        time.sleep(0.11)  # Chromium lets a page start ten downloads a second
        self.js(click)
        end = time.monotonic() + 20
        while time.monotonic() < end:
            done = [f for f in set(self.downloads.iterdir()) - before if not f.name.endswith((".crdownload", ".tmp"))]
            visible = [f for f in done if not f.name.startswith(".")]
            if visible:
                with open(visible[0], encoding="utf-8", newline="") as file:
                    text = file.read()
                visible[0].unlink()  # or the next of that name could not be told from it
                return visible[0].name, text
            time.sleep(0.05)
        raise AssertionError(f"nothing was downloaded by {click}")

    def screenshot(self, file: Path, *, whole: bool = False) -> None:
        import base64

        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        file.write_bytes(base64.b64decode(data))

    def close(self) -> None:
        os.killpg(self.process, signal.SIGKILL)
        os.waitpid(self.process, 0)
        os.close(self._write)
        os.close(self._read)

    def _call(self, method: str, *, session: str | None, **parameters: Any) -> dict[str, Any]:
        self._next += 1
        message = {"id": self._next, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            heard = self._hear()
            if heard.get("id") == self._next:
                assert "error" not in heard, f"{method}: {heard.get('error')}"
                result: dict[str, Any] = heard["result"]
                return result
            self._note(heard)

    def _hear(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            assert select.select([self._read], [], [], 60)[0], "the browser does not answer"
            part = os.read(self._read, 1 << 20)
            assert part, "the browser ended"
            self._buffer += part
        line, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        return message

    def _note(self, event: dict[str, Any]) -> None:
        method, details = event.get("method"), event.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(details["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.console.append(str(details["exceptionDetails"]))
        elif method == "Log.entryAdded" and details["entry"]["level"] in ("error", "warning"):
            self.console.append(details["entry"]["text"])
        elif method == "Runtime.consoleAPICalled" and details["type"] in ("error", "warning", "assert"):
            self.console.append(str(details["args"]))


def _pipe() -> tuple[int, int]:
    """A pipe whose ends are out of the way of 3 and 4, where the browser expects its own."""
    ends = os.pipe()
    high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 20) for end in ends]
    for end in ends:
        os.close(end)
    return high[0], high[1]
