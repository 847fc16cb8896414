"""A headless Chromium with one page, controlled by the DevTools protocol over pipes: JSON messages that end in a zero
byte, on the browser's file descriptors 3 and 4."""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
from pathlib import Path
from time import monotonic

SOON_S = 60  # enough on a busy machine
HARMLESS = ("file:", "data:", "blob:", "about:")


def executable() -> str | None:
    return next((path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None)


class Chromium:
    """Collects the page's errors (`errors`) and requests (`requests`; those for files on the disk: `files`)."""

    def __init__(self):
        self.number, self.buffer = 0, b""
        self.forget()
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_browser, self.input = os.pipe()
        self.output, from_browser = os.pipe()

        def connect():  # copies first, because a pipe may have number 3 or 4
            reading, writing = os.dup(to_browser), os.dup(from_browser)
            reading, writing = (os.dup(reading) if reading < 5 else reading), (os.dup(writing) if writing < 5 else writing)
            os.dup2(reading, 3)
            os.dup2(writing, 4)

        self.process = subprocess.Popen(
            [executable(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
             "--remote-debugging-pipe", f"--user-data-dir={self.profile.name}", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=connect,
            close_fds=False)
        os.close(to_browser)
        os.close(from_browser)
        page = next(target for target in self.call("Target.getTargets")["targetInfos"] if target["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    session: str | None = None

    def show(self, width: int, dark: bool = False, height: int = 1000) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.set_dark(dark)

    def set_dark(self, dark: bool) -> None:
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def call(self, method: str, **parameters) -> dict:
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.input, json.dumps(message).encode() + b"\0")
        end = monotonic() + SOON_S
        while True:
            answer = self.next_message(end)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.note(answer)

    def next_message(self, end: float) -> dict:
        while b"\0" not in self.buffer:
            if not select.select([self.output], [], [], max(0, end - monotonic()))[0]:
                raise TimeoutError("the browser does not answer")
            piece = os.read(self.output, 1 << 20)
            if not piece:
                raise EOFError(f"the browser has ended with status {self.process.wait()}")
            self.buffer += piece
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def note(self, event: dict) -> None:
        what = event.get("params", {})
        match event.get("method"):
            case "Runtime.exceptionThrown":
                details = what["exceptionDetails"]
                self.errors.append(details.get("exception", {}).get("description") or details["text"])
            case "Runtime.consoleAPICalled" if what["type"] in ("error", "assert", "warning"):
                self.errors.append(" ".join(str(part.get("value", part.get("description"))) for part in what["args"]))
            case "Log.entryAdded" if what["entry"]["level"] in ("error", "warning"):
                self.errors.append(what["entry"]["text"])
            case "Network.requestWillBeSent" if not what["request"]["url"].startswith(HARMLESS):
                self.requests.append(what["request"]["url"])
            case "Network.requestWillBeSent" if what["request"]["url"].startswith("file:"):
                self.files.append(what["request"]["url"])

    def forget(self) -> None:
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.files: list[str] = []  # read from the disk

    def open(self, path: Path) -> None:
        """Opens the page and waits until its script has drawn everything, or has reported why it cannot."""
        self.call("Page.navigate", url="about:blank")
        self.forget()
        self.call("Page.navigate", url=path.as_uri())
        self.wait_for("document.readyState === 'complete' && (document.documentElement.dataset.ready === 'yes' || "
                      "!document.querySelector('.fault')?.hidden)")

    def value(self, expression: str):
        """The value of a JavaScript expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails'].get('exception', {}).get('description')}")
        return answer["result"].get("value")

    def wait_for(self, expression: str) -> None:
        end = monotonic() + SOON_S
        while not self.value(expression):
            if monotonic() > end:
                raise TimeoutError(f"never became true: {expression}; the page said: {self.errors}")

    def screenshot(self, path: Path, whole: bool = True) -> None:
        options = {}
        if whole:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            options = {"captureBeyondViewport": True, "clip": {"x": 0, "y": 0, "width": size["width"],
                                                               "height": min(size["height"], 12000), "scale": 1}}
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png", **options)["data"]))

    def close(self) -> None:
        for end in (self.input, self.output):
            os.close(end)
        self.process.terminate()
        try:
            self.process.wait(SOON_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.profile.cleanup()
