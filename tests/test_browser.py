"""The explorer in a real browser: the film plays, a student's kernel is opened, arrays of four axes fold into tiles.

These tests need Chromium: ``pytest -m browser``, or ``make test-browser``. More of them are in ``test_explorer_page``.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from browser import Browser
from programs import softmax

from minisitch.course.assignment import find_assignment, in_variant
from minisitch.explain.explore import explored, explored_kernel

STYLE = Path(__file__).parent.parent / "minisitch" / "explain" / "explore" / "explore.css"
STEP = "Number(document.getElementById('slider').value)"
VALUE = "document.getElementById('{}').textContent"
X = np.random.default_rng(0).normal(size=(64, 1024)).astype(np.float32)


@pytest.fixture(scope="module")
def browser():
    with Browser() as found:
        found.screen()
        yield found
        assert found.errors == []


@pytest.fixture
def shown(browser, tmp_path):
    """Open what can be explored as a saved page."""
    def open_page(exploration, at=""):
        (tmp_path / "page.html").write_text(exploration.page(saved=True), encoding="utf-8")
        browser.open(f"{(tmp_path / 'page.html').as_uri()}{at}")
    return open_page


@pytest.fixture(scope="module")
def stitched():
    return explored(softmax, (X,), {}, "astitch")


# ---------------------------------------------------------------- the film plays
@pytest.mark.browser
def test_the_film_plays_at_a_speed_and_is_held(browser, shown, stitched):
    shown(stitched)
    press = "document.getElementById('play').click()"
    speed = "document.getElementById('speed').value = {}; document.getElementById('speed').dispatchEvent(new Event('change'))"
    browser.run(speed.format(20))
    assert browser.run(STEP) == 1, "a speed alone plays nothing"
    browser.run(press)
    assert browser.run(VALUE.format("play")) == "pause"
    browser.until(f"{STEP} > 6")
    browser.run(press)
    held = browser.run(STEP)
    browser.run("new Promise(done => setTimeout(done, 300))")
    assert browser.run(STEP) == held and browser.run(VALUE.format("play")) == "play"
    browser.press(" ")
    browser.until(f"{STEP} > {held + 2}")
    browser.press("ArrowLeft")  # whoever takes a step holds the film
    held = browser.run(STEP)
    browser.run("new Promise(done => setTimeout(done, 300))")
    assert browser.run(STEP) == held
    browser.press("End")
    browser.press("ArrowLeft", 2)
    browser.run(press)
    browser.until(VALUE.format("play") + " === 'play'")
    assert browser.run(STEP) == browser.run("Number(document.getElementById('slider').max)"), "it ends by itself"
    browser.run(press)
    browser.until(f"{STEP} > 1 && {STEP} < 30")  # and begins again
    browser.run(press)


@pytest.mark.browser
def test_who_wants_little_motion_gets_a_picture_for_each_barrier(browser, shown, stitched):
    browser.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-reduced-motion", "value": "reduce"}])
    shown(stitched)
    barriers = "Number(/after (\\d+) barrier/.exec(document.getElementById('place').textContent)[1])"
    browser.run("document.getElementById('speed').value = 20; document.getElementById('play').click()")
    browser.run("new Promise(done => setTimeout(done, 500))")
    assert browser.run(STEP) == 1, "slowly, at any speed"
    browser.until(f"{STEP} > 1")
    assert browser.run(barriers) == 1 and browser.run(STEP) > 5
    assert browser.run("getComputedStyle(document.querySelector('.cells i')).transitionDuration") == "0s"
    browser.run("document.getElementById('play').click()")
    browser.screen()


# ---------------------------------------------------------------- a student's kernel
@pytest.fixture
def submission(tmp_path):
    """A2 with a barrier too few, in a folder as a student has it."""
    wrong = {each.name: each.text for each in find_assignment("A2").misconceptions()}
    path = tmp_path / "softmax.py"
    path.write_text(in_variant(wrong["no_barrier_after_the_top"], "weights"), encoding="utf-8")
    return path


@pytest.mark.browser
def test_a_students_kernel_is_refused_and_mended_in_the_page(browser, submission):
    """The command finds the launch by the assignment of that file."""
    def listen():
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    words = [sys.executable, "-m", "minisitch", "explore", str(submission)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, preexec_fn=listen) as process:
        try:
            browser.open(process.stdout.readline().strip())
            said = browser.run(VALUE.format("verdict"))
            assert said.startswith("refused: race: part[0]: a load by block 0 thread ")
            lines = submission.read_text(encoding="utf-8").splitlines()
            bad = browser.run("[...document.querySelectorAll('#text li.bad .number')].map(n => Number(n.textContent))")
            assert [lines[n - 1].strip() for n in bad] == ["top = part[0]", "part[thread] = total"], "with the numbers of the file"
            assert browser.run("[...document.querySelectorAll('#arrays i.refused')].map(i => i.dataset.cell)") == ["0"]
            right, wrong = browser.run("[...document.querySelectorAll('#orders .number')].map(n => n.textContent)")
            assert re.match(r"right: y\[\d, \d+\] = ", right) and re.match(r"wrong: y\[\d, \d+\] = ", wrong) and right[5:] != wrong[5:]
            browser.run(f"[...document.querySelectorAll('#text li')][{bad[0] - 1}].focus()")
            browser.press("Enter")
            browser.run("document.activeElement.value = '    top = part[0]; cuda.syncthreads()'")
            browser.press("Enter")
            browser.until("document.getElementById('verdict').textContent.startsWith('accepted')")
            assert browser.run(VALUE.format("verdict")).startswith("accepted: no race, no unwritten cell, and the result is right")
            assert browser.run("document.querySelectorAll('#orders > *').length") == 0
            assert browser.run("[...document.querySelectorAll('main > section, [data-of]')].every(part => part.hidden)")
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 0
        finally:
            process.kill()


# ---------------------------------------------------------------- what is drawn
@pytest.mark.browser
def test_an_array_of_four_axes_folds_into_tiles(browser, shown):
    x = np.random.default_rng(0).normal(size=(2, 3, 4, 7)).astype(np.float32)
    shown(explored(softmax, (x,), {}, "astitch"), "#step=1")
    tiles = "[...document.querySelectorAll('.array')].find(a => a.textContent.startsWith('x0')).querySelectorAll('.tile')"
    assert browser.run(f"[...{tiles}].map(t => t.textContent)") == [f"[{i}, {j}]" for i in range(2) for j in range(3)]
    cells = f"[...{tiles}].map(t => [...t.querySelectorAll('i')].map(i => Number(i.dataset.cell)))"
    assert browser.run(cells) == [list(range(28 * k, 28 * k + 28)) for k in range(6)]
    widths = browser.run(f"[...{tiles}].map(t => getComputedStyle(t.querySelector('.cells')).getPropertyValue('--across'))")
    assert widths == ["7"] * 6
    y = np.zeros_like(x)
    text = "def one(x, y):\n    t = cuda.threadIdx.x\n    y[1, 2, 3, t] = x[1, 2, 3, t]\n"
    shown(explored_kernel(text, {"x": x, "y": y}, block=7), "#step=1")
    read = browser.run(f"[...{tiles.replace('x0', 'x')}].map(t => t.querySelectorAll('i.read').length)")
    assert read == [0, 0, 0, 0, 0, 7]
    browser.run("document.querySelector('#arrays i.read').dispatchEvent(new MouseEvent('mouseover', {bubbles: true}))")
    assert browser.run(VALUE.format("cell")).startswith("x[1, 2, 3, 0] holds ")


@pytest.mark.browser
@pytest.mark.parametrize("width", [400, 1280])
def test_the_line_of_the_step_stays_in_view(browser, shown, stitched, width):
    browser.screen(width, 800)
    shown(stitched, "#step=1")
    browser.run("document.getElementById('lives').scrollIntoView()")  # where a reader looks at memory
    inside = """(() => { const line = document.querySelector('#text li.lit').getBoundingClientRect();
        const pane = document.getElementById('text').getBoundingClientRect();
        return line.top >= Math.max(0, pane.top - 1) && line.bottom <= Math.min(innerHeight, pane.bottom + 1); })()"""
    for _ in range(browser.run("Number(document.getElementById('slider').max)")):
        assert browser.run(inside), browser.run(VALUE.format("place"))
        browser.press("ArrowRight")
    browser.screen()


@pytest.mark.browser
def test_colours_have_one_meaning_and_a_legend(browser, shown, stitched):
    text = STYLE.read_text(encoding="utf-8")
    schemes = re.findall(r":root \{(.*?)\}", text, re.S)
    rest = re.sub(r":root \{.*?\}", "", text, flags=re.S)
    assert len(schemes) == 2 and not re.findall(r"#[0-9a-f]{3,8}\b(?=[;, ])", rest), "a colour is written where its meaning is"
    for scheme in schemes:
        colours = re.findall(r"--[\w-]+: (#\w+)", scheme)
        assert len(colours) > 12 and len(set(colours)) == len(colours)
    shown(stitched, "#step=12")
    swatches = "[...document.querySelectorAll('.legend i')].map(i => getComputedStyle(i).backgroundColor)"
    legend = browser.run(swatches)
    assert "rgba(0, 0, 0, 0)" not in legend
    used = browser.run("[...document.querySelectorAll('.cells i[class], .threads i[class], #text li.lit, #lives td[class] i')]"
                       ".filter(i => i.className || i.parentElement.className).map(i => getComputedStyle(i).backgroundColor)")
    paper = browser.run("getComputedStyle(document.querySelector('.cells i[class=\"\"]')).backgroundColor")
    assert set(used) - {paper, "rgba(0, 0, 0, 0)"} <= set(legend) and len(set(used)) > 3


@pytest.mark.browser
def test_the_explorer_works_in_the_frame_of_another_page(browser, tmp_path, stitched):
    """As a notebook and the documentation show it: without an address of its own, and its script is the only one that runs."""
    (tmp_path / "around.html").write_text(f"<p>{stitched._repr_html_()}</p>", encoding="utf-8")
    browser.open((tmp_path / "around.html").as_uri())
    inside = "document.querySelector('iframe').contentDocument"
    browser.until(f"{inside}.getElementById('place')?.textContent.startsWith('step 1 of ')")
    browser.run(f"{inside}.getElementById('forward').click()")
    assert browser.run(f"{inside}.getElementById('place').textContent").startswith("step 2 of ")
    assert browser.run("location.hash") == ""
