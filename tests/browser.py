"""A headless Chromium, which tests drive by the DevTools protocol over two pipes."""

import base64
import fcntl
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any, Self

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
    *("--disable-dev-shm-usage", "--remote-debugging-pipe"),
)


class Page:
    """A page of a new browser with an empty profile in `profile`; the end of the block ends the browser."""

    def __init__(self, profile: Path) -> None:
        assert CHROMIUM is not None
        (end_in, self._out), (self._in, end_out) = os.pipe(), os.pipe()
        ends = [fcntl.fcntl(each, fcntl.F_DUPFD, 10) for each in (end_in, end_out)]
        # the browser reads commands from its descriptor 3 and writes answers to 4
        shell = f'exec "$0" "$@" 3<&{ends[0]} 4>&{ends[1]}'
        command = ["bash", "-c", shell, CHROMIUM, *OPTIONS, f"--user-data-dir={profile}", "about:blank"]
        self._process = subprocess.Popen(command, pass_fds=ends, stderr=subprocess.DEVNULL)
        for each in (end_in, end_out, *ends):
            os.close(each)
        self._number, self._rest, self.events, self._session = 0, b"", list[dict[str, Any]](), ""
        targets = self.send("Target.getTargets")["targetInfos"]
        page = next(each["targetId"] for each in targets if each["type"] == "page")
        self._session = self.send("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._in)
        os.close(self._out)

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Return the result of a command. What the browser tells meanwhile is added to `events`."""
        self._number += 1
        command = {"id": self._number, "method": method, "params": parameters}
        command |= {"sessionId": self._session} if self._session else {}
        os.write(self._out, json.dumps(command).encode() + b"\0")
        while True:
            while b"\0" not in self._rest:
                found = os.read(self._in, 1 << 20)
                assert found, "the browser has ended"
                self._rest += found
            message, _, self._rest = self._rest.partition(b"\0")
            answer = json.loads(message)
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def open(self, path: Path, *, width: int = 1200, height: int = 900, dark: bool = False) -> None:
        """Load the file `path`, in a window of this size."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.send("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])
        self.send("Page.navigate", url=path.resolve().as_uri())
        self.wait("document.readyState === 'complete'")

    def run(self, script: str) -> Any:
        """Return the value of an expression of JavaScript."""
        answer = self.send("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait(self, condition: str, seconds: float = 60) -> None:
        """Wait until an expression is true."""
        until = time.monotonic() + seconds
        while not self.run(condition):
            assert time.monotonic() < until, f"not within {seconds:g} s: {condition}"
            time.sleep(0.02)

    def type(self, element: str, text: str) -> None:
        """Put `text` into the element of this id, as typing does."""
        value = f"document.getElementById({json.dumps(element)})"
        self.run(f"{value}.value = {json.dumps(text)}; {value}.dispatchEvent(new Event('input'))")

    def text_of(self, element: str) -> str:
        """Return the text of the element of this id."""
        return str(self.run(f"document.getElementById({json.dumps(element)}).innerText"))

    def picture(self, path: Path) -> None:
        """Write a picture of the whole page."""
        size = self.send("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        found = self.send("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(found["data"]))
