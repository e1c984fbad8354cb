"""A headless Chromium for tests, driven by the DevTools protocol over two pipes: no port, no package.

Chromium reads requests from its file descriptor 3 and writes answers to 4, each a JSON text that ends in a zero byte.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--remote-debugging-pipe")
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


class Browser:
    """One browser with one page. A context manager: it ends with its processes."""

    def __init__(self):
        path = next(filter(None, map(shutil.which, NAMES)), None)
        assert path, f"these tests need Chromium on the PATH (one of {', '.join(NAMES)}); on Debian: apt-get install chromium"
        self.folder = tempfile.TemporaryDirectory(prefix="minisitch-browser-", ignore_cleanup_errors=True)
        (theirs_in, self.to), (self.back, theirs_out) = os.pipe(), os.pipe()
        ours = os.dup(theirs_in), os.dup(theirs_out)  # the numbers 3 and 4 may be among those given out here

        def place():
            os.dup2(ours[0], 3)
            os.dup2(ours[1], 4)

        os.set_inheritable(ours[0], True)
        os.set_inheritable(ours[1], True)
        self.process = subprocess.Popen([path, *FLAGS, f"--user-data-dir={self.folder.name}", "about:blank"], preexec_fn=place,
                                        close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for each in (theirs_in, theirs_out, *ours):
            os.close(each)
        self.number, self.left, self.session = 0, b"", None
        target = next(t for t in self.ask("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self.session = self.ask("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        self.ask("Page.enable")
        self.ask("Runtime.enable")
        self.ask("Network.enable")
        self.errors = []

    def ask(self, method, **parameters):
        """Send a request and return its result. Errors of the page's script are collected."""
        self.number += 1
        request = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            request["sessionId"] = self.session
        os.write(self.to, json.dumps(request).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self.number:
                assert "error" not in answer, answer
                return answer["result"]

    def _next(self):
        while b"\0" not in self.left:
            more = os.read(self.back, 1 << 16)
            assert more, "the browser has ended"
            self.left += more
        first, _, self.left = self.left.partition(b"\0")
        answer = json.loads(first)
        if answer.get("method") == "Runtime.exceptionThrown":
            self.errors.append(answer["params"]["exceptionDetails"].get("exception", {}).get("description", str(answer)))
        if answer.get("method") == "Log.entryAdded":
            self.errors.append(answer["params"]["entry"]["text"])
        return answer

    def open(self, address):
        """Go to an address, and wait until the page has loaded."""
        self.ask("Page.navigate", url="about:blank")
        self.ask("Page.navigate", url=address)
        self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    def run(self, script):
        """The value of an expression in the page, promises awaited."""
        found = self.ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def until(self, script):
        """Wait, at most ten seconds, until an expression is true."""
        self.run(f"""new Promise((done, refuse) => {{
            const end = Date.now() + 10000;
            const look = () => ({script}) ? done() : Date.now() > end ? refuse(new Error("still not: " + {json.dumps(script)})) : setTimeout(look, 10);
            look(); }})""")

    def press(self, key, times=1):
        for _ in range(times):
            for kind in ("rawKeyDown", "keyUp"):
                self.ask("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=KEYS.get(key, 0))

    def write(self, words):
        self.ask("Input.insertText", text=words)

    def screen(self, width=1300, height=900, dark=False):
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def offline(self):
        self.ask("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=0, uploadThroughput=0)

    def picture(self, path):
        """Write what the page looks like, from top to bottom."""
        found = self.ask("Page.captureScreenshot", captureBeyondViewport=True)
        Path(path).write_bytes(base64.b64decode(found["data"]))

    def close(self):
        os.close(self.to)  # Chromium ends when nobody can write to it any more
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.back)
        self.folder.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()


KEYS = {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Home": 36, "End": 35, "PageUp": 33, "PageDown": 34,
        "Enter": 13, " ": 32, "Delete": 46, "Escape": 27, "Tab": 9}
