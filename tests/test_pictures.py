"""Pictures: words lie inside and never on each other, counts are those of the data, the same data gives the same text."""

from __future__ import annotations

import itertools
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest
from programs import gelu, softmax

import minisitch as ms
from minisitch import simt
from minisitch.errors import MinisitchError
from minisitch.explain import draw, film
from minisitch.explain.picture import lifetimes, memory_map, thread_map
from minisitch.explain.svg import BOTH, CHARACTER, READ, SIZE, WRITTEN, Picture
from minisitch.stitch.mapping import map_rows

V100 = ms.DEVICES["v100"]


def plan(function, shape, strategy):
    return ms.lower(function, shape, strategy=strategy, target="step", stop_after="fuse")


TOTAL = """
def total(x, y):
    t = cuda.threadIdx.x
    s = cuda.shared.array(64, np.float32)
    s[t] = x[t]
    cuda.syncthreads()
    for step in (32, 16, 8, 4, 2, 1):
        if t < step:
            s[t] += s[t + step]
        cuda.syncthreads()
    if t == 0:
        y[0] = s[0]
"""


def recorded(text, *sizes, grid=1, block=64):
    events = []
    simt.step(text, [np.ones(size, np.float32) for size in sizes], grid, block, record=events)
    return events


def stepped_softmax():
    """The softmax kernel of a device with two warps a block, and its events."""
    toy = replace(ms.get_device("h100"), name="toy", sms=1, threads_per_sm=128, max_block=64)
    (source,) = ms.lower(softmax, "f32[8,100]", strategy="astitch", target="cuda", device=toy, passes=())
    return source.kernel, recorded(source.text, 800, 800, grid=source.kernel.grid, block=source.kernel.block)


PICTURES = {
    "film": lambda: film.film(recorded(TOTAL, 64, 1), TOTAL),
    "turns": lambda: film.turns(stepped_softmax()[1]),
    "lifetimes": lambda: lifetimes(stepped_softmax()[0]),
    "trips": lambda: draw.trips(*(plan(softmax, "f32[64,1000]", s) for s in ("none", "xla", "astitch"))),
    "trips of a map": lambda: draw.trips(plan(gelu, "f32[1000]", "none"), plan(gelu, "f32[1000]", "astitch")),
    "graph": lambda: draw.graph(ms.lower(softmax, "f32[4,8]", stop_after="trace").graph),
    "plan": lambda: draw.graph(plan(gelu, "f32[1000]", "xla")),
    "machine": lambda: draw.machine(V100),
    "threads": lambda: draw.threads(np.arange(70), 32),
    "ruler": lambda: draw.ruler({"NumPy": 3e-9, "ours": 0.0, "wrong": 1e-4}, 4e-7),
    "roofline": lambda: draw.roofline(ms.compare(softmax, "f32[16,64]", target="step", device="v100",
                                                 strategies=("none", "xla", "astitch"))),
    "packing": lambda: thread_map(map_rows(750_000, 32, V100)),
    "splitting": lambda: thread_map(map_rows(64, 30_000, V100)),
    "memory": lambda: memory_map([("%3 exp", 0, 100, 0, 1), ("%5 sum", 128, 64, 1, 2)], 192, "workspace"),
}


def words(picture):
    """The place of each line of text: left, top, right, bottom. Turned text is left out."""
    tree = ET.fromstring(picture)
    turned = {e for g in tree.iter() if "transform" in g.attrib for e in g.iter()}
    for e in tree.iter():
        if e.tag.endswith("text") and e not in turned:
            size = float(e.attrib.get("font-size", SIZE))
            wide = len(e.text or "") * CHARACTER * size / SIZE
            x, y = float(e.attrib["x"]), float(e.attrib["y"])
            left = x - {"start": 0, "middle": wide / 2, "end": wide}[e.attrib["text-anchor"]]
            yield e.text, (left, y - 0.7 * size, left + wide, y)


@pytest.mark.parametrize("name", PICTURES)
def test_words_lie_inside_and_not_on_each_other(name):
    picture = PICTURES[name]()
    width, height = map(float, ET.fromstring(picture).attrib["viewBox"].split()[2:])
    places = list(words(picture))
    for text, (left, top, right, bottom) in places:
        assert left >= -2 and top >= 0 and right <= width + 2 and bottom <= height, text
    for (a, one), (b, other) in itertools.combinations(places, 2):
        apart = one[2] <= other[0] + 1 or other[2] <= one[0] + 1 or one[3] <= other[1] + 1 or other[3] <= one[1] + 1
        assert apart, f"{a!r} lies on {b!r}"


@pytest.mark.parametrize("name", PICTURES)
def test_the_same_data_gives_the_same_picture_for_light_and_dark(name):
    picture = PICTURES[name]()
    assert isinstance(picture, Picture) and picture._repr_svg_() == picture == PICTURES[name]()
    assert "prefers-color-scheme:dark" in picture and 'fill="#fff"' not in picture and " id=" not in picture


def test_trips_are_counted():
    """none: five kernels, 7 reads and 5 writes of a softmax; stitched: one of each."""
    for strategy, reads, writes in (("none", 7, 5), ("astitch", 1, 1)):
        made = plan(softmax, "f32[64,1000]", strategy)
        picture = draw.trips(made)
        heads = [f'Z" fill="{colour}"' for colour in (READ, WRITTEN)]
        assert (picture.count(heads[0]), picture.count(heads[1])) == (reads, writes)
    assert draw.moved(made) == 2 * 64 * 1000 * 4


def test_a_plan_is_drawn_with_the_words_that_it_prints():
    """A matrix product is a library call, and no kernel."""
    drawn = ms.lower(lambda x, w: np.tanh(x @ w), "f32[8,8]", "f32[8,8]", strategy="astitch", target="cuda", stop_after="fuse")
    said = [text for text, _ in words(draw.graph(drawn))]
    assert {"library 0", "kernel 1"} <= set(said) and "kernel 0" not in said


def test_a_film_has_a_frame_between_two_barriers_and_the_cells_that_are_touched():
    """A sum of 64: the frame after the k-th barrier has half as many threads, and reads twice as many cells as it writes."""
    picture = film.film(recorded(TOTAL, 64, 1), TOTAL)
    assert [f"frame {n}" in picture for n in range(9)] == [True] * 8 + [False]
    legend = 1
    assert picture.count(f'fill="{BOTH}"') - legend == 32 + 16 + 8 + 4 + 2 + 1
    assert picture.count(f'fill="{READ}"') - legend == 64 + (32 + 16 + 8 + 4 + 2 + 1) + 1
    assert picture.count(f'fill="{WRITTEN}"') - legend == 64 + 1


def test_turns_show_the_warps_that_meet_at_each_barrier():
    kernel, events = stepped_softmax()
    picture = film.turns(events, most=3)
    assert "warp 0" in picture and "warp 1" in picture and "warp 2" not in picture
    assert picture.count(">barrier<") == 3
    first = next(b.name for b in kernel.buffers if b.scope == "shared" and b.name.startswith("w"))
    assert f"write {first}" in picture and f"read {first}" in picture


def test_threads_without_an_element_are_dashed():
    assert draw.threads(np.arange(70), 32).count("stroke-dasharray") == 96 - 70


def test_a_roofline_is_of_a_gpu():
    """A CPU's caches are faster than its memory: programs would lie above the roof."""
    with pytest.raises(MinisitchError, match="roofline"):
        draw.roofline(ms.compare(softmax, "f32[4,8]", target="reference", device="cpu", strategies=("none",)))


def test_no_dot_lies_above_the_roof():
    found = ms.compare(softmax, "f32[16,64]", target="step", device="v100", strategies=("none", "astitch"))
    for row in found.rows:
        nbytes = row.bytes_read + row.bytes_written
        assert nbytes / (row.modelled_us * 1e-6) <= V100.bandwidth, row.strategy


def test_a_picture_is_saved(tmp_path):
    draw.machine(V100).save(str(tmp_path / "machine.svg"))
    assert ET.parse(tmp_path / "machine.svg").getroot().tag.endswith("svg")
