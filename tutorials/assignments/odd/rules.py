"""Honest submissions that look odd: each has all points of the solution that it is made of.

``FILES`` says how: the path in a folder of submissions, as bytes, and a function from the solution's text to what is in it.
"""

import io
import zipfile


def packed(name: str, text: str, **others: str) -> bytes:
    """A zip of a file, and of others beside it."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as zipped:
        for each, inside in {name: text, **others}.items():
            zipped.writestr(each, inside)
    return data.getvalue()


HEAD = "from __future__ import annotations\nimport logging, sys, warnings\nimport numpy as np\n" \
       "logging.basicConfig()\nwarnings.warn('old')\nsys.setrecursionlimit(5000)\n"
MAIN = "if __name__ == '__main__':\n    exit(1)\n"
FILES = {
    b"mark of the byte order.py": lambda text: b"\xef\xbb\xbf" + text.encode(),
    b"windows lines.py": lambda text: text.replace("\n", "\r\n").encode(),
    b"no last line end.py": lambda text: text.rstrip("\n").encode(),
    b"tabs.py": lambda text: text.replace("    ", "\t").encode(),
    b"form feeds.py": lambda text: text.replace("\n\n\ndef ", "\n\x0c\n\ndef ").encode(),
    b"says its encoding.py": lambda text: b"#!/usr/bin/env python3\n# -*- coding: utf-8 -*-\n" + text.encode(),
    b"words of all lands.py": lambda text: f"# Größe, размер, 尺寸 \U0001f600\nÜber = 'ß'\n{text}".encode(),
    b"many comments.py": lambda text: (text + "# thinking ...\n" * 40_000).encode(),
    b"talks.py": lambda text: f"print('hello' * 1000, end='')\n{text}\nprint(spans, grow, flush=True)\n".encode(),
    b"imports a lot.py": lambda text: f"{HEAD}{text}".encode(),
    b"tries itself.py": lambda text: f"{text}\nassert spans({{0: []}}, {{0: 1}}) == {{0: 0}}\n{MAIN}".encode(),
    b"has a mark of its own.py": lambda text: f"{text}\n# variant: mine, which has no end\nX = 1\n".encode(),
    b"has types.py": lambda text: f"from typing import Any\nNames: dict[int, Any] = {{}}\n{text}".encode(),
    b"wraps its functions.py": lambda text: f"{text}\n_spans = spans\ndef spans(*a, **k):\n    return _spans(*a, **k)\n".encode(),
    b"in a folder/spans.py": str.encode,
    b"deeper/homework/week 4/spans.py": str.encode,
    b"other name/spans (1).py": str.encode,
    "Käthe Ångström.py".encode(): str.encode,
    b"Stra\xdfe.py": str.encode,  # the name of an old file system
    b"zipped.zip": lambda text: packed("spans.py", text),
    b"zipped folder.zip": lambda text: packed("A5/spans.py", text, **{"A5/handout.md": "# A5", "__MACOSX/A5/._spans.py": "\0"}),
    b"zipped with other files.zip": lambda text: packed("spans.py", text, **{"items.py": "x = 1\n", "old/spans.py": ")"}),
}
