"""Attacks that are made by rules: what is tried, times where it stands; and files that are no program at all.

``FILES`` has the path of each in a folder of submissions, as bytes, and what is in it.
"""

import io
import zipfile
from collections.abc import Iterator

TRIES = {
    "read": "[open(p).read() for p in ('/etc/passwd', '/proc/self/environ', __import__('os').getcwd() + '/secret')]",
    "write": "open('/tmp/minisitch-attack-made', 'w').write('here')",
    "kill": "__import__('os').kill(-1, 9), __import__('os').killpg(__import__('os').getppid(), 9)",
    "spawn": "__import__('os').posix_spawn('/bin/sh', ['sh', '-c', 'touch /tmp/minisitch-attack-sh'], {})",
    "forge": "[__import__('os').write(n, b'{\"id\": 2, \"value\": {\"dict\": []}}\\n') for n in range(3, 12)]",
    "patch": "__import__('sys').modules['__main__'].__dict__.update(encode=lambda value: {'dict': []})",
    "call": "__import__('ctypes').CDLL(None).syscall(56, 17, 0, 0, 0, 0)",
    "grow": "[bytearray(1 << 28) for _ in range(64)]",
}
PLACES = {
    "at the top": "{tried}\ndef spans(readers, cost):\n    return None\n",
    "in the answer": "class Lie(dict):\n    def items(self):\n        {tried}\n        return [(self, self)]\n"
                     "def spans(readers, cost):\n    return Lie(readers)\n",
    "in the function": "def spans(readers, cost):\n    {tried}\n    return None\n",
    "at the end": "class Last:\n    def __del__(self):\n        {tried}\ndef spans(readers, cost):\n    Last()\n    return None\n",
}


def packed(entries: dict[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A zip of files."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", compression) as zipped:
        for name, each in entries.items():
            zipped.writestr(name, each)
    return data.getvalue()


def files() -> Iterator[tuple[bytes, bytes]]:
    """Each attack's path and bytes."""
    for what, tried in TRIES.items():
        for place, text in PLACES.items():
            yield f"{what} {place}.py".encode(), text.format(tried=tried).encode()
    nothing = b"def spans(readers, cost):\n    return None\n"
    rows = {"comments": "#", "marks": "# variant: own", "ends": "# end variant", "solutions": "    # solution: a", "ifs": "if 1:",
            "blanks": " " * 20}
    for name, row in rows.items():
        yield f"40000 {name}.py".encode(), nothing + f"{row}\n".encode() * 40_000
    yield b"brackets.py", b"(" * 900_000
    yield b"nulls.py", b"\0" * 900_000
    yield b"utf16.py", nothing.decode().encode("utf-16")
    yield b"one_line.py", b"x = '" + b"a" * 1_000_000 + b"'\n"
    yield b"too_long.py", b"#" * (2 << 20)
    yield b"no \xff utf-8 \xe9.py", nothing
    yield b"=cmd|'calc'!A0.py", nothing
    yield b"@SUM(1+1).py", b")"
    yield b"-2+3.py", b"\xff"
    yield b"new\nline,\"comma\".py", nothing
    yield b"bomb.zip", packed({"spans.py": b"#" * (256 << 20)})
    yield b"lzma.zip", packed({"spans.py": nothing}, zipfile.ZIP_LZMA)
    yield b"cut.zip", packed({"spans.py": nothing})[:-30]
    yield b"many.zip", packed({f"{n}/spans.py": b"" for n in range(5_000)})
    yield b"outside.zip", packed({"../../spans.py": nothing, "/etc/spans.py": nothing})
    yield b"in itself.zip", packed({"inner.zip": packed({"spans.py": nothing})})
    yield b"two/a/spans.py", nothing
    yield b"two/b/spans.py", nothing
    yield b"folder/spans.py/spans.txt", nothing
    yield b"deep/" + b"d/" * 200 + b"spans.py", nothing


FILES = dict(files())
