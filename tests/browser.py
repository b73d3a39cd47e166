"""A real browser for the tests: Chromium, driven through a pipe by its own protocol, with nothing but Python."""

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

CHROMIUM = next((path for name in ("chromium", "chromium-browser") if (path := shutil.which(name))), None)
PATIENCE = 120  # seconds for whatever is waited for
FLAGS = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--use-angle=swiftshader",  # 3-D without a graphics card
    "--enable-unsafe-swiftshader",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--hide-scrollbars",
    "--no-first-run",
    "--no-sandbox",  # containers run the tests as root, which the sandbox refuses
)


class Browser:
    """One page at a time. `requests` are the addresses that it asked for, `problems` what it complained of."""

    def __init__(self):
        assert CHROMIUM is not None
        self._folder = tempfile.TemporaryDirectory(prefix="chromium", ignore_cleanup_errors=True)
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        # The protocol is spoken on the descriptors 3 and 4; bash puts them there, with no fork of this process.
        script = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}'
        words = ["bash", "-c", script, "bash", CHROMIUM, *FLAGS, f"--user-data-dir={self._folder.name}", "about:blank"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "stdin": subprocess.DEVNULL}
        self._process = subprocess.Popen(words, pass_fds=(theirs_in, theirs_out), start_new_session=True, **quiet)
        os.close(theirs_in)
        os.close(theirs_out)
        self._count, self._buffer, self._session = 0, b"", None
        self.requests: list[str] = []
        self.problems: list[str] = []
        target = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *_):
        os.close(self._out)  # which ends it
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        os.close(self._in)
        self._folder.cleanup()

    def call(self, method: str, **arguments) -> dict[str, Any]:
        """Asks for something, and waits for the answer."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": arguments}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + PATIENCE
        while True:
            answer = self._read(until)
            if answer.get("id") == self._count:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def _read(self, until: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            if not select.select([self._in], [], [], max(0.0, until - time.monotonic()))[0]:
                raise TimeoutError("the browser says nothing")
            if not (more := os.read(self._in, 1 << 20)):
                raise RuntimeError("the browser has ended")
            self._buffer += more
        line, _, self._buffer = self._buffer.partition(b"\0")
        message = json.loads(line)
        self._note(message.get("method"), message.get("params", {}))
        return message

    def _note(self, method: str | None, event: dict[str, Any]):
        if method == "Network.requestWillBeSent":
            self.requests.append(event["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            details = event["exceptionDetails"]
            self.problems.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Runtime.consoleAPICalled" and event["type"] in ("error", "assert", "warning"):
            self.problems.append(" ".join(str(each.get("value", each)) for each in event["args"]))
        elif method == "Log.entryAdded" and event["entry"]["level"] in ("error", "warning"):
            self.problems.append(event["entry"]["text"])

    def open(self, path: Path, width: int = 1360, height: int = 900, dark: bool = False):
        """Shows a file on a screen of this size."""
        self.requests.clear()
        self.problems.clear()
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=path.resolve().as_uri())
        self.until("document.readyState === 'complete'")

    def run(self, script: str) -> Any:
        """The value of an expression on the page."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def until(self, script: str) -> Any:
        """Waits until an expression is true."""
        end = time.monotonic() + PATIENCE
        while not (value := self.run(script)):
            if time.monotonic() > end:
                raise TimeoutError(f"never true: {script}")
            time.sleep(0.05)
        return value

    def mouse(self, kind: str, x: float, y: float, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, x: float, y: float):
        self.mouse("mouseMoved", x, y)
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, x, y, button="left", clickCount=1)

    def press(self, key: str):
        """A key that has a name: Tab, Enter, ArrowLeft."""
        code = {"Tab": 9, "Enter": 13, "Home": 36, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}[
            key
        ]
        more = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown", **more, **({"text": "\r"} if key == "Enter" else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **more)

    def picture(self, path: Path, whole: bool = False):
        """What is on the screen, as a PNG file; `whole`: the page down to its end."""
        taken = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(taken["data"]))
