"""This CPU: minisitch beside NumPy, numexpr, JAX, Torch and Inductor, peer by peer in processes that take turns.

    python -m minisitch bench --suite cpu [--preset full] [--peers numpy,numexpr,jax,torch,inductor] [--peer-python PYTHON]
                                          [--workload softmax | softmax-1x768 [,...]] [--seconds 5] [--fresh]
    python -m benchmarks.cpu benchmarks/results/FILE.json           (the report on a file that is there, and its picture)

In:  the programs of ``cpu_programs.py``, and their forms in other libraries (``cpu_forms.py``). Out: a table, means, what is
slower than the best peer, what is less exact than NumPy; a picture; ``benchmarks/results/*.json`` with all samples.

How it is measured. For each case every peer gets a process (``cpu_peer.py``) with an empty disk cache and makes its first
call; peers that compile then get a second process, with the disk cache that the first one filled, and make their first call
again. The processes now take turns: one measures, all others sleep. A turn is calls for some milliseconds that warm the
caches and wake the threads, then calls for another that are the sample. Each round has another order, and medians count.
Between the peers a gauge takes its turn: a spin on all cores at once, which takes longer where other programs are running,
and a copy past every cache of a core's own, by ordinary stores on all cores, the speed that a case's least traffic (every input
in, every output out, once) is held against. Allocator and threads are everybody's defaults.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from minisitch.errors import MinisitchError
from minisitch.explain.compare import take_turns

from .cpu_peer import COMPILE, LIBRARIES, ROUNDING
from .cpu_programs import WORKLOADS, cases
from .results import ROOT, Record, Results, as_a_program, complain, measure_all, origin, path_of, say

MOST_ROUNDS, FEWEST_ROUNDS = 41, 9
NOISE = 0.01  # from this distance of NumPy's own from a wider type an output is nothing but rounding
REST_S = 0.01  # between two turns: threads that wait for work in a loop fall asleep
HERE = ("minisitch", "numpy", "gauge")  # run under the Python that runs this


# ---------------------------------------------------------------- a peer's process
@dataclass(frozen=True)
class Setting:
    """How peers run: minisitch's target, the others' Python, and where the files of kernels are, by their names."""

    target: str
    python: str
    files: dict[str, str]


class Peer:
    """A process that runs one case of one library when asked."""

    def __init__(self, name: str, case: str, setting: Setting, cache: str) -> None:
        self.name = name
        self.complaint = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115  close() ends its life
        environment = {k: v for k, v in os.environ.items() if k != "MINISITCH_PLANS"}  # plans are kept as users have them
        environment |= {"MINISITCH_CACHE": cache, "TORCHINDUCTOR_CACHE_DIR": cache, "NUMBA_CACHE_DIR": cache}
        file = setting.files.get(name, "")
        words = json.dumps({"peer": name, "case": case, "target": setting.target, "file": file})
        python = sys.executable if name in HERE or file else setting.python
        self.process = subprocess.Popen([python, "-m", "benchmarks.cpu_peer", words], cwd=ROOT, env=environment, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.complaint)
        self.hello = self.answer()

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End it; a second time does nothing."""
        if self.complaint.closed:
            return
        try:
            self.process.communicate(timeout=20)  # the end of its stdin
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
        self.complaint.close()

    def ask(self, word: str) -> Record:
        """What it answers; an error where it has died."""
        with suppress(BrokenPipeError):
            print(word, file=self.process.stdin, flush=True)
        return self.answer()

    def answer(self) -> Record:
        assert self.process.stdout
        if line := self.process.stdout.readline():
            return json.loads(line)
        self.complaint.seek(0)
        last = self.complaint.read().strip().splitlines()[-1:]
        return {"error": "".join(last) or f"the process ended with code {self.process.wait()}"}


def missing(peers: Sequence[str], setting: Setting) -> dict[str, str]:
    """The peers that cannot be imported, and why. Raises MinisitchError for unknown ones."""
    found = {}
    for name in peers:
        if name not in LIBRARIES and name not in setting.files:
            raise MinisitchError(f"unknown peer {name!r}; take some of {', '.join(n for n in LIBRARIES if n != 'gauge')}, "
                                 "or a Python file of kernels")
        with tempfile.TemporaryDirectory() as cache, Peer(name, "", setting, cache) as peer:
            if "version" not in peer.hello:
                found[name] = peer.hello.get("missing") or peer.hello["error"]
    return found


# ---------------------------------------------------------------- measuring one case, in a process of its own
def measure(workload: str, peers: Sequence[str], target: str, seconds: float, python: str, files: dict[str, str],
            **_: Any) -> Record:
    """The record of one case."""
    rows: dict[str, Record] = {}
    ready: dict[str, Peer] = {}
    setting = Setting(target, python, files)
    with ExitStack() as stack:
        cache = stack.enter_context(tempfile.TemporaryDirectory())
        for name in peers:
            folder = os.path.join(cache, name)
            os.makedirs(folder)
            rows[name], peer = start(name, workload, setting, folder)
            stack.enter_context(peer)
            if "first_s" in rows[name]:
                ready[name] = peer
        gauge = stack.enter_context(Peer("gauge", workload, setting, cache))
        gauge.ask("first")
        machine = sample_each(ready, gauge, rows, seconds)
        say("comparing with a wider type")
        for name, peer in ready.items():
            rows[name] |= peer.ask("check")
    left_out = leave_out_noise(rows)
    own = rows["numpy"]
    for row in rows.values():
        if "distances" in row and "distances" in own:
            row["of_numpys"] = in_units_of(own, row["distances"])
    return {"cpu": processor(), "bytes": own.get("bytes", 0), "noise_outputs": left_out, **machine, "peers": rows}


def leave_out_noise(rows: dict[str, Record]) -> int:
    """Forget the outputs that NumPy itself gets wrong by more than a hundredth, as gradients that are zero on paper: they are
    nothing but rounding. Gives how many."""
    own = rows["numpy"].get("distances", [])
    kept = [k for k, distance in enumerate(own) if distance <= NOISE]
    for row in rows.values():
        for what in {"distances", "dtypes"} & row.keys():
            if len(row[what]) == len(own):
                row[what] = [row[what][k] for k in kept]
    return len(own) - len(kept)


def start(name: str, case: str, setting: Setting, folder: str) -> tuple[Record, Peer]:
    """A peer after its first call; where a disk cache may have shortened it, the second process to make one."""
    say(f"{name}: first call")
    peer = Peer(name, case, setting, folder)
    row = {**peer.hello, **(peer.ask("first") if "version" in peer.hello else {})}
    if name in COMPILE and "first_s" in row:
        peer.close()
        say(f"{name}: first call of the next process")
        peer = Peer(name, case, setting, folder)
        row["warm_s"] = peer.ask("first").get("first_s")
    return row, peer


def sample_each(ready: dict[str, Peer], gauge: Peer, rows: dict[str, Record], seconds: float) -> Record:
    """A sample a round of each peer, into ``rows``; gives what the gauge found."""
    machine: Record = {"spin_us": [], "copy_us": []}
    began = time.perf_counter()
    for number, order in enumerate(islice(take_turns([*ready.values()]), MOST_ROUNDS)):
        if number >= FEWEST_ROUNDS and time.perf_counter() - began > seconds:
            break
        say(f"round {number + 1}")
        for what, us in gauge.ask("sample").items():
            machine[what].append(us)
        for peer in order:
            time.sleep(REST_S)
            answer = peer.ask("sample")
            if "us" in answer:
                rows[peer.name].setdefault("call_us", []).append(answer["us"])
            else:
                rows[peer.name] |= answer
    return machine


def in_units_of(numpys: Record, distances: Sequence[float]) -> float:
    """The worst output's distance in NumPy's own, which is at least one rounding; 0 where integers must be equal and are."""
    own = [max(d, ROUNDING.get(t, 1.0)) for d, t in zip(numpys["distances"], numpys["dtypes"], strict=True)]
    return round(max((d / o for d, o in zip(distances, own, strict=True)), default=0.0), 3)


def processor() -> Record:
    """The model, how wide its vectors are, and its last cache, as far as the system says."""
    model, bits = platform.processor() or platform.machine(), 0
    info = Path("/proc/cpuinfo")
    if info.exists():
        named = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in info.read_text().splitlines())}
        flags = named.get("flags", "").split()
        model, bits = named.get("model name", model), 512 if "avx512f" in flags else 256 if "avx2" in flags else 128
    caches = sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"))
    return {"model": model, "vector_bits": bits, "last_cache": caches[-1].read_text().strip() if caches else "unknown"}


# ---------------------------------------------------------------- the suite
def main(options: argparse.Namespace) -> None:
    """Measure what the results lack and print the report of what was asked for.

    Raises MinisitchError at the end if a case failed, or minisitch did, or its results are wrong.
    """
    files = {Path(name).name: str(Path(name).absolute()) for name in options.peers if name.endswith(".py")}  # no record has a path
    setting = Setting(options.target, options.peer_python or sys.executable, files)
    peers = list(dict.fromkeys(["minisitch", "numpy", *(Path(name).name for name in options.peers)]))
    absent = missing(peers, setting)
    for name, why in absent.items():
        print(f"{name} is skipped: {why}", file=sys.stderr)
    peers = [name for name in peers if name not in absent]
    chosen = choose(options.workload, options.preset)
    wanted = {name: {"target": options.target, "seconds": options.seconds, "peers": peers, **origin(Path(__file__))}
              for name in chosen}
    results = Results(options.out or path_of("cpu", options.preset), options.fresh)
    failed = measure_all("cpu", results, wanted, options.fresh, {"python": setting.python, "files": files})
    records = {name: results.records[name] for name in chosen if name not in failed}
    if records:
        show(records, results.path)
    print(f"raw results: {results.path}")
    mine = {name: record["peers"]["minisitch"] for name, record in records.items()}
    complain(failed, [f"{name}: {row['error']}" for name, row in mine.items() if "error" in row])


def show(records: dict[str, Record], path: Path) -> None:
    """Print the report, and draw the picture beside the raw results."""
    from . import cpu_report
    print(cpu_report.report(records), end="\n\n")
    path.with_suffix(".svg").write_text(cpu_report.picture(records), encoding="utf-8")


def choose(named: Sequence[str], preset: str) -> list[str]:
    """The cases that are named, or all shapes of the programs that are; any case may be named in either preset."""
    every, mine = cases("full"), []
    for word in named or cases(preset):
        found = [name for name in every if word in (name, name.rpartition("-")[0])]
        if not found:
            raise MinisitchError(f"unknown workload {word!r}; take one of {', '.join(WORKLOADS)}, or one of a shape, as {every[0]}")
        mine += found
    return list(dict.fromkeys(mine))


if __name__ == "__main__":
    as_a_program("cpu", measure, lambda file: show(Results(file).records, file))
