# attack: Starts other programs, and becomes one.
import os
import subprocess
import sys


def attack():
    for start in (
        lambda: subprocess.run(["sleep", "30"]),
        lambda: os.system("sleep 30"),
        lambda: os.posix_spawn("/bin/sleep", ["sleep", "30"], {}),
        lambda: os.execv(sys.executable, [sys.executable, "-c", "print(1)"]),
    ):
        try:
            start()
        except (OSError, subprocess.SubprocessError):
            pass
    return {}


def spans(readers, cost):
    return attack()


def grow(root, readers, spans, fits):
    return attack()
