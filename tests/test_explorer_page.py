"""The page of the explorer: as a file, who may ask for it, the command, and in a real browser.

The last need Chromium. They have the mark ``browser``: run them with ``pytest -m browser``, or ``make test-browser``.
"""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
import tomllib
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from browser import Browser
from explorer_help import NUMBERS, TOTAL

import minisitch as ms
from minisitch import __main__ as cli
from minisitch.course import __main__ as course
from minisitch.course.assignment import find_assignment, in_variant
from minisitch.explain.explore import explored, maps, small
from minisitch.explain.explore.server import MOST_BYTES
from minisitch.fuse import STRATEGIES
from minisitch.stitch.mapping import map_rows


# ---------------------------------------------------------------- the page as a file
def test_the_page_holds_everything_and_its_data_cannot_leave_their_place():
    def hostile(x):
        return x + 1.0  # </script><script>alert(1)</script>

    page = explored(hostile, (NUMBERS,), {}, "none").page(saved=True)
    assert page.count("<script") == page.count("</script>") == 2 and "alert(1)" in page
    assert "http:" not in page and "https:" not in page and "{DATA}" not in page
    held = page.partition('id="data">')[2].partition("</script>")[0]
    assert json.loads(held)["name"] == "hostile"


def test_an_installed_package_has_what_the_page_is_made_of():
    root = Path(ms.__file__).parent
    listed = tomllib.loads((root.parent / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]["package-data"]["minisitch"]
    there = {str(path.relative_to(root)) for path in (root / "explain" / "explore").iterdir() if path.suffix not in (".py", "")}
    assert there == {name for name in listed if name.startswith("explain/explore/")} and len(there) == 4


# ---------------------------------------------------------------- who may ask
def ask(server, method="GET", path=None, body=None, **changed):
    """The status and the body of an answer, with headers as the page sends them but for ``changed``."""
    headers = {"Host": f"127.0.0.1:{server.server_port}"}
    if method == "POST":
        headers |= {"Origin": server.origin, "X-Token": server.token}
    for name, value in changed.items():
        headers[name.replace("_", "-")] = value
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    connection.putrequest(method, path or f"/?token={server.token}", skip_host=True)
    data = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else b""
    for name, value in ({"Content-Length": str(len(data))} | headers).items():
        if value is not None:
            connection.putheader(name, value)
    connection.endheaders()
    connection.send(data)
    answer = connection.getresponse()
    found = answer.status, answer.read()
    connection.close()
    return found


def test_the_page_is_served_to_who_has_the_address(server):
    status, page = ask(server)
    assert status == 200 and b"<title>centre, as astitch compiles it</title>" in page
    assert server.server_address[0] == "127.0.0.1" and len(server.token) >= 16


@pytest.mark.parametrize("changed", [
    {"Host": "localnet.example"}, {"Host": "127.0.0.1"}, {"Host": "127.0.0.1:1"}, {"Host": None},
    {"path": "/"}, {"path": "/?token="}, {"path": "/?token=wrong"}, {"path": "/?token=%FF"}, {"path": "/x?token=wrong"}])
def test_the_page_is_refused_to_others(server, changed):
    assert ask(server, **changed) == (403, b"wrong host or token")


@pytest.mark.parametrize("changed", [
    {"Host": "evil.example"}, {"Origin": None}, {"Origin": "null"}, {"Origin": "http://evil.example"},
    {"Origin": "http://localnet.example"}, {"X_Token": None}, {"X_Token": "wrong"}, {"X_Token": ""}, {"X_Token": "\u00e9"}])
def test_a_verdict_is_refused_to_others(server, centred, changed):
    asked = {"kernel": 0, "text": centred.trials[0].text}
    assert ask(server, "POST", "/verdict", asked, **changed) == (403, b"wrong host, origin or token")


def test_a_verdict_is_given_to_the_page(server, centred):
    status, body = ask(server, "POST", "/verdict", {"kernel": 0, "text": centred.trials[0].text})
    assert status == 200 and json.loads(body)["right"]


@pytest.mark.parametrize("body", [b"", b"[", b"[]", b'"x"', b"{}", b"[" * 50_000, {"kernel": 1, "text": ""}, {"kernel": -1, "text": ""},
                                  {"kernel": "0", "text": ""}, {"kernel": 0, "text": 3}, b"\xff\xfe"])
def test_a_request_that_is_none_is_answered_in_words(server, body):
    status, said = ask(server, "POST", "/verdict", body)
    assert status == 400 and said


def test_a_request_is_bounded(server):
    assert ask(server, "POST", "/verdict", b"", Content_Length=str(MOST_BYTES + 1))[0] == 413
    assert ask(server, "POST", "/verdict", b"", Content_Length="-1")[0] == 413
    assert ask(server, "POST", "/verdict", b"", Content_Length=None)[0] == 413
    assert ask(server, path=f"/other?token={server.token}")[0] == 404
    assert ask(server, "POST", "/other")[0] == 404


# ---------------------------------------------------------------- the command
PROGRAM = "import numpy as np\n\ndef twice(x):\n    return x + x\n"


def test_the_command_saves_a_page(tmp_path, capsys):
    (tmp_path / "f.py").write_text(PROGRAM, encoding="utf-8")
    page = tmp_path / "page.html"
    assert cli.main(["explore", f"{tmp_path}/f.py:twice", "--arg", "x=f32[64,64]", "--save", str(page)]) == 0
    assert "wrote" in capsys.readouterr().out and "columns shortened from 64 to 40" in page.read_text(encoding="utf-8")


def test_the_command_serves_until_it_is_interrupted(tmp_path):
    (tmp_path / "f.py").write_text(PROGRAM, encoding="utf-8")
    words = [sys.executable, "-m", "minisitch", "explore", f"{tmp_path}/f.py:twice", "--arg", "x=f32[8,8]"]
    def listen():  # a shell tells what it starts in the background to ignore an interrupt, and its children inherit that
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, preexec_fn=listen) as process:
        try:
            address = process.stdout.readline().strip()
            with urllib.request.urlopen(address) as answer:
                assert answer.status == 200 and b"<title>twice, as auto compiles it</title>" in answer.read()
            with pytest.raises(urllib.error.HTTPError, match="403"):
                urllib.request.urlopen(address[:-1])
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 0
        finally:
            process.kill()


def held(page):
    """The data that a saved page holds."""
    return json.loads(Path(page).read_text(encoding="utf-8").partition('id="data">')[2].partition("</script>")[0])


def test_the_command_opens_a_kernel_and_never_runs_its_file(tmp_path, capsys):
    kernel, page = tmp_path / "kernel.py", tmp_path / "page.html"
    kernel.write_text("raise SystemExit('the file ran')\n" + PROGRAM.partition("\n")[2] + TOTAL, encoding="utf-8")
    words = ["explore", f"{kernel}:total", "--save", str(page)]
    assert cli.main([*words, "--arg", "x=f32[64]", "--arg", "y=f32[1]", "--launch", "1,64"]) == 0
    data = held(page)
    assert data["title"] == "total" and data["kernels"][0]["verdict"]["ok"] and data["notes"] == ["1 block of 64 threads"]
    assert cli.main([*words, "--arg", "x=f32[64]", "--arg", "y=f32[1]", "--launch", "1,32"]) == 0
    assert held(page)["kernels"][0]["verdict"]["rule"] == "unwritten-read"
    capsys.readouterr()
    assert cli.main(words) == 2
    assert "write --arg NAME=f32[64] for each array of the kernel, and --launch BLOCKS,THREADS" in capsys.readouterr().err
    assert cli.main(["explore", f"{tmp_path}/nothing.py"]) == 2
    assert "there is no file" in capsys.readouterr().err


def test_the_command_finds_the_launch_of_an_assignment(tmp_path, monkeypatch, capsys):
    assignment = find_assignment("A2")
    monkeypatch.chdir(tmp_path)
    submission = tmp_path / "softmax.py"
    submission.write_text(assignment.starter("weights"), encoding="utf-8")
    assert cli.main(["explore", "softmax.py"]) == 1
    assert "softmax is as the starter has it: write the kernel softmax first" in capsys.readouterr().err
    submission.write_text(assignment.text("solution.py", "weights"), encoding="utf-8")
    assert cli.main(["explore", "softmax.py", "--save", "page.html"]) == 0
    (kernel,) = held("page.html")["kernels"]
    assert kernel["verdict"]["ok"] and kernel["verdict"]["right"] and kernel["block"] == 64
    taken = kernel["tried"][str(next(each["line"] for each in kernel["changes"] if each["what"] == "barrier"))]
    assert taken["rule"] == "race" and "syncthreads()" not in taken["message"], "what to write is for the student to find"
    repair = tmp_path / "repair.py"
    repair.write_text(find_assignment("A3").text("given.py", find_assignment("A3").variant), encoding="utf-8")
    assert cli.main(["explore", "repair.py:turns", "--save", "page.html"]) == 0
    (kernel,) = held("page.html")["kernels"]
    assert kernel["name"] == "turns" and [order["right"] for order in kernel["verdict"]["orders"]] == [True, False]
    assert cli.main(["explore", str(Path(assignment.folder, "..", "A5_spans", "solution.py"))]) == 1
    assert "A5 launches no kernel" in capsys.readouterr().err


def test_show_writes_the_explorer_of_the_launch_that_failed(tmp_path, monkeypatch, capsys):
    wrong = {each.name: each.text for each in find_assignment("A2").misconceptions()}
    monkeypatch.chdir(tmp_path)
    (tmp_path / "softmax.py").write_text(in_variant(wrong["no_barrier_before_the_second_tree"], "weights"), encoding="utf-8")
    assert course.main(["show", "A2", "no race", "softmax.py"]) == 1
    assert "wrote A2-no-race.html: the same launch as a film; to edit it: python -m minisitch explore softmax.py" in capsys.readouterr().out
    verdict = held("A2-no-race.html")["kernels"][0]["verdict"]
    assert verdict["rule"] == "race" and [order["right"] for order in verdict["orders"]] == [True, False]


@pytest.mark.parametrize("words, says", [
    (["--port", "99999"], "leave --port out"), (["--save", "/nowhere/page.html"], "choose another path"),
    (["--strategy", "none2"], "unknown strategy")])
def test_wrong_words_are_answered(tmp_path, capsys, words, says):
    (tmp_path / "f.py").write_text(PROGRAM, encoding="utf-8")
    assert cli.main(["explore", f"{tmp_path}/f.py:twice", "--arg", "x=f32[8,8]", *words]) == 2
    assert says in capsys.readouterr().err


# ---------------------------------------------------------------- in a browser
STATE = "document.querySelector('main').outerHTML + location.hash"
REMOVE = "[...document.querySelectorAll('#text button')].filter(b => b.textContent === 'take out the {}').at({}).click()"


@pytest.fixture(scope="module")
def browser():
    with Browser() as found:
        found.screen()
        yield found
        assert found.errors == []


@pytest.fixture(scope="module")
def saved(centred, tmp_path_factory) -> str:
    path = Path(tmp_path_factory.mktemp("explorer"), "page.html")
    path.write_text(centred.page(saved=True), encoding="utf-8")
    return path.as_uri()


@pytest.mark.browser
def test_twenty_steps_forward_and_twenty_back_give_the_same_page(browser, server):
    browser.open(f"{server.url}#step=5")
    before = browser.run(STATE)
    seen = []
    for _ in range(20):
        browser.run("document.getElementById('forward').click()")
        seen.append(browser.run(STATE))
    assert len({*seen, before}) == 21 and browser.run("location.hash") == "#step=25"
    browser.press("ArrowLeft", 20)
    assert browser.run(STATE) == before


@pytest.mark.browser
def test_the_address_names_the_step(browser, server):
    browser.open(f"{server.url}#step=17")
    assert browser.run("document.getElementById('place').textContent").startswith("step 17 of ")
    browser.run("location.hash = '#step=3'")
    browser.until("document.getElementById('place').textContent.startsWith('step 3 of ')")
    browser.press("End")
    last = browser.run("Number(document.getElementById('slider').max)")
    assert browser.run("location.hash") == f"#step={last}"
    browser.press("PageUp")
    assert 3 < browser.run("Number(document.getElementById('slider').value)") < last


@pytest.mark.browser
@pytest.mark.parametrize("where", ["served", "saved"])
def test_a_removed_barrier_shows_the_race_with_both_lines(browser, server, saved, where):
    browser.open(server.url if where == "served" else saved)
    browser.run(REMOVE.format("barrier", -1))
    browser.until("document.getElementById('verdict').textContent.startsWith('refused: race')")
    lit = browser.run("[...document.querySelectorAll('#text li.bad .number')].map(n => Number(n.textContent))")
    assert len(lit) == 2
    assert browser.run("document.getElementById('slider').value === document.getElementById('slider').max")
    said = browser.run("document.getElementById('happens').textContent")
    assert all(f"Line {line}: block" in said for line in lit)
    assert browser.run("document.querySelectorAll('#threads i.refused').length") == 2
    assert browser.run("document.querySelectorAll('#arrays i.refused').length") == 1
    browser.run("document.getElementById('restore').click()")
    browser.until("document.getElementById('verdict').textContent.startsWith('accepted: no race')")


@pytest.mark.browser
def test_a_line_is_edited_by_keyboard_and_judged_at_once(browser, server):
    browser.open(server.url)
    browser.run("[...document.querySelectorAll('#text li')].find(l => l.textContent.includes(' = v0_1 - r1')).focus()")
    browser.press("Enter")
    browser.run("document.activeElement.value = document.activeElement.value.replace(' - ', ' + ')")
    browser.press("Enter")
    browser.until("document.getElementById('verdict').textContent.startsWith('accepted, but the result is wrong')")
    browser.press("Delete")  # the line is still in focus: put it back
    browser.until("document.getElementById('verdict').textContent.startsWith('accepted: no race')")


@pytest.mark.browser
def test_lines_are_linked_by_mouse_and_by_keyboard(browser, server):
    browser.open(server.url)
    count = "[...document.querySelectorAll('{} li.linked')].map(l => l.textContent).join('|')"
    browser.run("[...document.querySelectorAll('#graph li')].find(l => l.textContent.includes('max'))"
                ".dispatchEvent(new MouseEvent('mouseenter'))")
    assert "np.max" in browser.run(count.format("#source"))
    assert "syncthreads" in browser.run(count.format("#text")) and "max" in browser.run(count.format("#loop"))
    browser.run("[...document.querySelectorAll('#graph li')].find(l => l.textContent.includes('sub')).focus()")
    browser.press("ArrowRight")
    assert browser.run("document.activeElement.closest('ol').id") == "loop"
    assert "sub" in browser.run("document.activeElement.textContent")
    browser.press("ArrowRight")
    assert browser.run("document.activeElement.closest('ol').id + document.activeElement.textContent").startswith("text")
    browser.press("ArrowLeft", 2)
    assert "sub" in browser.run("document.activeElement.textContent")
    browser.press("ArrowUp")
    assert browser.run("document.activeElement === document.querySelectorAll('#graph li')[document.querySelectorAll('#graph li').length - 2]")


@pytest.mark.browser
def test_a_thread_is_chosen_by_keyboard(browser, saved):
    browser.open(f"{saved}#step=1")
    browser.run("document.getElementById('threads').focus()")
    browser.press("ArrowRight", 2)
    assert browser.run("document.getElementById('thread').textContent").startswith("thread 1: read x0[1]")
    assert browser.run("location.hash") == "#step=1"


@pytest.mark.browser
def test_two_chosen_nodes_show_the_rule_and_what_would_have_to_be_different(browser, cut_up, tmp_path):
    (tmp_path / "page.html").write_text(cut_up.page(saved=True), encoding="utf-8")
    browser.open((tmp_path / "page.html").as_uri())
    for op in ("max", "exp"):
        browser.run(f"[...document.querySelectorAll('#why-nodes button')].find(b => b.textContent.includes('{op}')).click()")
    said = browser.run("document.getElementById('why').textContent")
    assert "xla keeps %1 max and %4 exp apart" in said and "reduce-ends-kernel" in said and "What would have to be different" in said
    told = browser.run("[...document.querySelectorAll('#why li')].map(b => b.textContent)")
    assert len(told) == len(STRATEGIES) - 1 and "astitch fuses them." in " ".join(told)
    assert told[-1] == "none keeps them apart. This strategy fuses nothing. It is the baseline that the others are counted against."


@pytest.mark.browser
def test_two_strategies_stand_side_by_side_with_marks_where_they_differ(browser, saved):
    browser.open(saved)
    table = "[...document.querySelectorAll('#figures tr')].map(r => [...r.children].map(c => c.textContent).join(' '))"
    assert browser.run(table)[:2] == [" none astitch", "kernels 2 1"]
    assert browser.run("document.querySelectorAll('#groups tr.differs').length") == 2
    heights = browser.run("['left-text', 'right-text'].map(id => document.getElementById(id).children.length)")
    assert heights[0] == heights[1] > 20 and browser.run("document.querySelectorAll('#right-text li.only').length") > 0
    browser.run("document.getElementById('left').value = 'astitch'; document.getElementById('left').dispatchEvent(new Event('change'))")
    assert browser.run("document.querySelectorAll('.lines li.only, #groups tr.differs').length") == 0


@pytest.mark.browser
def test_sliders_draw_the_thread_map(browser, saved):
    browser.open(saved)
    for slider, value in (("map-rows", maps.ROWS.index(64)), ("map-columns", maps.COLUMNS.index(32))):
        browser.run(f"document.getElementById('{slider}').value = {value}; "
                    f"document.getElementById('{slider}').dispatchEvent(new Event('input'))")
    truth = map_rows(64, 32, small.TOY)
    assert truth.why in browser.run("document.getElementById('map-said').textContent")
    said = browser.run("[...document.querySelectorAll('#map i')].map(i => i.dataset.said)")
    assert len(said) == 12 * 32
    assert said[32 * truth.rows_per_block] == f"row {truth.rows_per_block}, column 0: block 1, turn 1, from thread 0 on"


@pytest.mark.browser
def test_a_barrier_of_shared_memory_leads_to_the_step_behind_it(browser, saved):
    browser.open(f"{saved}#step=1")
    browser.run("document.querySelectorAll('#lives button')[1].click()")
    assert "after 1 barrier " in browser.run("document.getElementById('place').textContent")
    assert browser.run("document.querySelectorAll('#lives td.here').length") == 1


@pytest.mark.browser
@pytest.mark.parametrize("function, shape, says", [
    (lambda x: x, (4, 4), "The program has no kernel."), (lambda x: x * 2, (0, 4), "No thread touches memory."),
    (lambda x: x.reshape(32, 1024) * 2, (32 * 1024,), "The kernel's arrays are too large for a film: give --arg smaller shapes.")])
def test_a_page_without_a_film_says_why(browser, tmp_path, function, shape, says):
    (tmp_path / "page.html").write_text(explored(function, (np.ones(shape, np.float32),), {}, "astitch").page(True), encoding="utf-8")
    browser.open((tmp_path / "page.html").as_uri())
    browser.press("ArrowRight")
    assert browser.run("document.getElementById('happens').textContent") == says
    assert browser.run("document.getElementById('forward').disabled") and browser.errors == []


@pytest.mark.browser
def test_a_saved_page_works_without_a_network(browser, saved):
    browser.offline()
    browser.open(f"{saved}#step=2")
    assert browser.run("document.getElementById('place').textContent").startswith("step 2 of ")
    assert browser.run("performance.getEntriesByType('resource').length") == 0
    browser.run(REMOVE.format("guard", 0))
    browser.until("document.getElementById('verdict').textContent.startsWith('refused')")
    browser.run(REMOVE.format("barrier", 0))
    browser.until("document.getElementById('verdict').textContent.includes('run python -m minisitch explore')")


@pytest.mark.browser
@pytest.mark.parametrize("dark", [False, True])
def test_nothing_is_wider_than_a_telephone(browser, saved, dark):
    browser.screen(400, 900, dark)
    browser.open(saved)
    assert browser.run("document.documentElement.scrollWidth") <= 400
    paper = browser.run("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") != dark
    browser.screen()
