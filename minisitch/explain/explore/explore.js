"use strict";
/* The explorer's page. What it shows is a function of `state` and of the data that Python wrote into the page:
 * `film()` draws a step, `text()` the kernel and its verdict, `lines()` the linked texts. No other file is loaded. */

const data = JSON.parse(document.getElementById("data").textContent);
const state = {
  kernel: 0,
  step: 0,  // counted from 0; the address counts from 1
  thread: -1,  // the one chosen in the strip
  timer: 0,  // while the film plays
  texts: data.kernels.map((kernel) => kernel.lines.map((line) => line.text)),
  verdicts: data.kernels.map((kernel) => kernel.verdict),
};
const MOST_DRAWN = 1024;  // cells of an array; with more, one drawn cell stands for several
const PANES = ["source", "graph", "loop", "text"].filter((pane) => pane === "text" || data.graph);
const calm = window.matchMedia("(prefers-reduced-motion: reduce)");

const byId = (id) => document.getElementById(id);

/** An element with attributes and children. Text becomes text: nothing of the data is read as HTML. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== false && value !== undefined) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children);
  return element;
}

const kernel = () => data.kernels[state.kernel];
const verdict = () => state.verdicts[state.kernel];
const steps = () => verdict()?.film.steps ?? [];

const sizeOf = (shape) => shape.reduce((size, n) => size * n, 1);

/** A cell's number as its place in an array, and back. */
const placeOf = (shape, cell) => shape.reduceRight(([rest, ...found], n) => [Math.floor(rest / n), rest % n, ...found], [cell]).slice(1);
const cellOf = (shape, place) => place.reduce((cell, index, axis) => cell * shape[axis] + index, 0);

/** How the kernel's text calls a cell: the compiler's kernels see arrays as one row. */
function cellName(name, shape, cell) {
  return `${name}[${data.graph ? cell : placeOf(shape, cell).join(", ")}]`;
}

/* ---------------------------------------------------------------- the film */
/** The arrays of the kernel. A changed text may have other shared ones, or larger ones. */
function arraysOf(kernel, film) {
  const found = kernel.arrays.map((array) => ({ ...array }));
  for (const [name, shape] of Object.entries(film.arrays)) {
    const known = found.find((array) => array.name === name);
    if (!known) found.push({ name, space: "shared", shape, words: `shared [${shape.join(", ")}]`, start: [] });
    else if (sizeOf(shape) > sizeOf(known.shape)) known.shape = shape;
  }
  return found;
}

/** What each cell holds after a step, and how it was touched since the last barrier: name -> cell -> {value, now, past}. */
function cellsAt(film, arrays, last) {
  const here = film.steps[last];
  const found = Object.fromEntries(arrays.map((array) => [array.name, new Map(
    array.start.map((value, cell) => [cell, { value, now: "", past: "" }]))]));
  film.steps.slice(0, last + 1).forEach((step, number) => {
    const together = step.block === here.block && step.barriers === here.barriers;
    for (const deed of step.does) {
      const cells = found[deed.array];
      const space = arrays.find((array) => array.name === deed.array)?.space;
      if (!cells || (space === "shared" && step.block !== here.block)) continue;
      deed.cells.forEach((cell, k) => {
        const at = cells.get(cell) ?? { value: "", now: "", past: "" };
        if (deed.what !== "read") at.value = deed.values[k];
        const time = number === last ? "now" : "past";
        if (together) at[time] = at[time] && at[time] !== deed.what ? "both" : deed.what;
        cells.set(cell, at);
      });
    }
  });
  return found;
}

/** The cell that a refusal is about: the first word of its message that reads like one. */
function refusedCell(step) {
  const named = step.refused && / (\w+)\[([\d, ]+)\]/.exec(` ${verdict().message}`);
  return named ? { array: named[1], place: named[2].split(",").map(Number) } : null;
}

/** The pieces in which an array is drawn: whole, or, from three axes on, a tile for each place along all but the last two. */
function tilesOf(shape) {
  const size = sizeOf(shape);
  if (shape.length < 3 || size === 0) {
    const last = shape.at(-1) ?? 1;
    return [{ first: 0, size, each: Math.ceil(size / MOST_DRAWN), across: Math.ceil(last / Math.ceil(last / 72)), name: "" }];
  }
  const columns = shape.at(-1);
  const tile = columns * shape.at(-2);
  const each = [...Array(columns).keys()].map((k) => k + 1).find((n) => columns % n === 0 && size / n <= MOST_DRAWN) ?? columns;
  const outer = shape.slice(0, -2);
  return [...Array(Math.min(size / tile, 64)).keys()].map((k) => (
    { first: k * tile, size: tile, each, across: columns / each, name: `[${placeOf(outer, k).join(", ")}]` }));
}

function drawArray(array, cells, step) {
  const named = refusedCell(step);
  const wrong = named && named.array === array.name ? cellOf(array.shape, named.place) : -1;
  const own = new Set(step.does.flatMap((deed) => deed.array === array.name
    ? deed.cells.filter((_, k) => deed.threads[k] === state.thread) : []));
  const drawn = tilesOf(array.shape).map((tile) => {
    const strip = make("div", { class: "cells", role: "img", "aria-label": `${array.name}${tile.name}, ${tile.size} cells` });
    strip.style.setProperty("--across", tile.across);
    strip.append(...cellsOf(tile, cells, wrong, own));
    return tile.name ? make("figure", { class: "tile" }, strip, make("figcaption", {}, tile.name)) : strip;
  });
  const box = make("div", { class: drawn.length > 1 || array.shape.length > 2 ? "tiles" : "" }, ...drawn);
  box.addEventListener("mouseover", (event) => {
    if (event.target.dataset.cell !== undefined) showCell(array, Number(event.target.dataset.cell), cells, step);
  });
  return make("div", { class: "array" }, make("b", {}, array.name), make("small", {}, array.words), box);
}

/** The drawn cells of one tile. Where there are many, one stands for several. */
function cellsOf({ first: start, size, each }, cells, wrong, own) {
  const drawn = [];
  for (let first = start; first < start + size; first += each) {
    const inside = [...Array(Math.min(each, start + size - first)).keys()].map((k) => first + k);
    const touched = inside.map((cell) => cells.get(cell)).filter((at) => at && (at.now || at.past));
    const now = [...new Set(touched.map((at) => at.now).filter(Boolean))];
    const past = [...new Set(touched.map((at) => at.past).filter(Boolean))];
    const kind = now.length ? (now.length > 1 ? "both" : now[0]) : past.length ? (past.length > 1 ? "both past" : `${past[0]} past`) : "";
    const refused = inside.includes(wrong) ? "refused" : "";
    drawn.push(make("i", { class: `${refused || kind}${inside.some((cell) => own.has(cell)) ? " own" : ""}`, "data-cell": first }));
  }
  return drawn;
}

function showCell(array, cell, cells, step) {
  const value = cells.get(cell)?.value;
  const who = step.does.flatMap((deed) => deed.array !== array.name ? [] : deed.cells.flatMap(
    (touched, k) => touched === cell ? [`${deed.what} by thread ${deed.threads[k]}`] : []));
  const deeds = who.length > 4 ? [...who.slice(0, 3), `and ${who.length - 3} more`] : who;
  byId("cell").textContent = [`${cellName(array.name, array.shape, cell)} ${value ? `holds ${value}` : "is empty"}`, ...deeds].join(" · ");
}

/** Numbers as ranges: 0 to 31, 40, 42 to 45. */
function ranges(numbers) {
  const sorted = [...new Set(numbers)].sort((a, b) => a - b);
  const found = [];
  for (const number of sorted) {
    const open = found.at(-1);
    if (open && open[1] + 1 === number) open[1] = number;
    else found.push([number, number]);
  }
  const words = found.slice(0, 4).map(([a, b]) => (a === b ? `${a}` : b === a + 1 ? `${a}, ${b}` : `${a} to ${b}`));
  return words.join(", ") + (found.length > 4 ? ", ..." : "");
}

const DEEDS = { read: "read", write: "write", atomic: "change by an atomic operation" };

/** One sentence a deed: 40 threads (0 to 39) read x0, cells 0 to 39. */
function sentence(deed) {
  const many = new Set(deed.threads).size;
  const who = `${many} thread${many > 1 ? "s" : ""} (${ranges(deed.threads)})`;
  if (deed.array) {
    const verb = DEEDS[deed.what] + (many > 1 || deed.what === "atomic" ? "" : "s");
    return `${who} ${verb} ${deed.array}, cell${new Set(deed.cells).size > 1 ? "s" : ""} ${ranges(deed.cells)}.`;
  }
  return deed.what.includes("shfl") || deed.what.includes("sync(") || deed.what.endsWith("_sync")
    ? `${who} exchange a value inside their warps: ${deed.what}.` : `${who} meet at the barrier: ${deed.what}.`;
}

function film() {
  const all = steps();
  const show = all.length > 0;
  for (const id of ["first", "barrier-back", "back"]) byId(id).disabled = !show || state.step === 0;
  for (const id of ["forward", "barrier-forward", "last"]) byId(id).disabled = !show || state.step === all.length - 1;
  byId("slider").disabled = byId("play").disabled = !show;
  if (!show) {
    byId("place").textContent = "no film";
    byId("happens").textContent = !kernel() ? "The program has no kernel."
      : !verdict() ? "The kernel's arrays are too large for a film: give --arg smaller shapes."
        : verdict().ok ? "No thread touches memory." : "The kernel was refused before it began.";
    for (const id of ["threads", "arrays", "thread", "lives"]) byId(id).replaceChildren();
    return;
  }
  const step = all[state.step];
  byId("slider").max = all.length;
  byId("slider").value = state.step + 1;
  byId("slider").setAttribute("aria-valuetext", `step ${state.step + 1} of ${all.length}`);
  byId("place").textContent = `step ${state.step + 1} of ${all.length} · block ${step.block} · ` +
    `after ${step.barriers} barrier${step.barriers === 1 ? "" : "s"} · line ${step.line}`;
  const code = make("code", {}, (state.texts[state.kernel][step.line - 1] ?? "").split("  #")[0].trim());
  byId("happens").replaceChildren(code, make("br"), step.refused
    ? `Refused: ${verdict().rule}. ${step.refused.map(([line, who]) => `Line ${line}: ${who}.`).join(" ")}`
    : step.does.map(sentence).join(" ") + (verdict().film.full && state.step === all.length - 1 ? " The film is full here." : ""));
  const arrays = arraysOf(kernel(), verdict().film);
  drawThreads(step, Object.fromEntries(arrays.map((array) => [array.name, array.shape])));
  const cells = cellsAt(verdict().film, arrays, state.step);
  byId("arrays").replaceChildren(...arrays.map((array) => drawArray(array, cells[array.name], step)));
  byId("cell").textContent = "Point at a cell to see what it holds.";
  lives(step, arrays.filter((array) => array.space === "shared"));
  light(step);
}

/** The shared arrays of the step's block: between which barriers each is touched. A button goes behind a barrier. */
function lives(step, arrays) {
  const mine = steps().map((each, k) => ({ ...each, k })).filter((each) => each.block === step.block);
  const counts = [...new Set(mine.map((each) => each.barriers))];
  if (!arrays.length) return byId("lives").replaceChildren("none");
  const head = make("tr", {}, make("th", {}, "barriers before"), ...counts.map((count) => make("th", {}, make("button", {
    title: `after ${count} barriers`, onclick: () => go(mine.find((each) => each.barriers === count).k) }, `${count}`))));
  const rows = arrays.map((array) => {
    const touched = new Set(mine.filter((each) => each.does.some((deed) => deed.array === array.name)).map((each) => each.barriers));
    const [first, last] = [Math.min(...touched), Math.max(...touched)];
    return make("tr", {}, make("th", {}, array.name), ...counts.map((count) => make("td", {
      class: [touched.has(count) ? "touched" : count > first && count < last ? "alive" : "", count === step.barriers ? "here" : ""]
        .filter(Boolean).join(" ") }, make("i"))));
  });
  byId("lives").replaceChildren(make("table", {}, head, ...rows));
}

function drawThreads(step, shapes) {
  const active = new Set(step.does.flatMap((deed) => deed.threads));
  const strip = byId("threads");
  strip.replaceChildren(...[...Array(kernel().block).keys()].map((thread) => make("i", {
    id: `thread-${thread}`, role: "option", "data-thread": thread, "aria-selected": thread === state.thread ? "true" : "false",
    "aria-label": `thread ${thread}${active.has(thread) ? ", takes part" : ""}`,
    class: [active.has(thread) ? "active" : "", Math.floor(thread / 32) % 2 ? "odd" : "", step.threads?.includes(thread) ? "refused" : "",
      thread === state.thread ? "chosen" : ""].filter(Boolean).join(" "),
  })));
  if (state.thread >= 0) strip.setAttribute("aria-activedescendant", `thread-${state.thread}`);
  else strip.removeAttribute("aria-activedescendant");
  const mine = step.does.flatMap((deed) => deed.threads.flatMap((thread, k) => thread !== state.thread ? [] : [
    deed.array ? `${DEEDS[deed.what]} ${cellName(deed.array, shapes[deed.array], deed.cells[k])} = ${deed.values[k]}`
      : deed.values[k] ? `${deed.what} gives ${deed.values[k]}` : deed.what]));
  byId("thread").textContent = state.thread < 0 ? "" : `thread ${state.thread}: ${mine.join(", ") || "does nothing in this step"}`;
}

/** Light the line of the step in the kernel; of a refusal, all lines that its message quotes. */
function light(step) {
  const bad = new Set((step.refused ?? []).map(([line]) => line));
  [...byId("text").children].forEach((line, k) => {
    line.classList.toggle("lit", !step.refused && k + 1 === step.line);
    line.classList.toggle("bad", bad.has(k + 1));
    if (!line.className) line.removeAttribute("class");  // so that a step has one page, however it was reached
    if (k + 1 === step.line) line.setAttribute("aria-current", "step");
    else line.removeAttribute("aria-current");
  });
  const at = byId("text").children[step.line - 1];
  const pane = byId("text");
  if (at && (at.offsetTop - pane.offsetTop < pane.scrollTop || at.offsetTop - pane.offsetTop > pane.scrollTop + pane.clientHeight - 24)) {
    pane.scrollTop = at.offsetTop - pane.offsetTop - pane.clientHeight / 2;  // the pane moves, and the page does not
  }
}

/* ---------------------------------------------------------------- steps and the address */
function go(step, byHand = true) {
  if (byHand) play(false);
  if (!steps().length) return film();
  state.step = Math.max(0, Math.min(steps().length - 1, step));
  film();
  const address = `#step=${state.step + 1}` + (state.kernel ? `&kernel=${state.kernel}` : "");
  if (location.hash !== address && location.protocol !== "about:") location.replace(address);  // a page in a frame has no address
}

/** Play the film to its end, or hold it. Who wants little motion gets a picture for each barrier. */
function play(on) {
  clearTimeout(state.timer);
  state.timer = 0;
  if (on && state.step === steps().length - 1) go(0);
  if (on) state.timer = setTimeout(next, calm.matches ? 2000 : 1000 / Number(byId("speed").value));
  byId("play").textContent = on ? "pause" : "play";
  byId("play").setAttribute("aria-pressed", on ? "true" : "false");
}

function next() {
  go(calm.matches ? pastBarrier(1) : state.step + 1, false);
  play(state.step < steps().length - 1);
}

/** The first step behind the next barrier, or behind the one before. */
function pastBarrier(direction) {
  const all = steps();
  const key = (k) => `${all[k].block}/${all[k].barriers}`;
  let k = state.step;
  if (direction > 0) {
    while (k < all.length - 1 && key(k) === key(state.step)) k += 1;
    return k;
  }
  if (k > 0) k -= 1;
  while (k > 0 && key(k - 1) === key(k)) k -= 1;
  return k;
}

const MOVES = {
  first: () => 0, back: () => state.step - 1, forward: () => state.step + 1, last: () => steps().length - 1,
  "barrier-back": () => pastBarrier(-1), "barrier-forward": () => pastBarrier(1),
};
const KEYS = { Home: "first", ArrowLeft: "back", ArrowRight: "forward", End: "last", PageUp: "barrier-back", PageDown: "barrier-forward" };

function readAddress() {
  const asked = new URLSearchParams(location.hash.slice(1));
  const chosen = Number(asked.get("kernel") ?? 0);
  if (chosen !== state.kernel && data.kernels[chosen]) chooseKernel(chosen);
  const step = Number(asked.get("step") ?? state.step + 1);
  if (Number.isInteger(step) && step - 1 !== state.step) go(step - 1);
}

/* ---------------------------------------------------------------- break it */
const isChanged = (k) => state.texts[state.kernel][k] !== kernel().lines[k].text;
let asked = 0;  // requests so far: an older answer must not overwrite a newer one

/** Ask for the verdict on the text as it is now, and show it. */
async function judge() {
  const which = state.kernel;
  const changed = kernel().lines.map((_, k) => k).filter(isChanged);
  asked += 1;
  const mine = asked;
  let found = kernel().verdict;
  if (changed.length && data.saved) {
    const tried = changed.length === 1 ? kernel().tried[changed[0] + 1] : undefined;
    const known = tried && kernel().changes.some((change) => change.line === changed[0] + 1 && change.text === state.texts[which][changed[0]]);
    found = known ? tried : { unknown: "A saved page knows what happens when one barrier or guard is taken out. " +
      "For more, run python -m minisitch explore." };
  } else if (changed.length) {
    byId("verdict").textContent = "stepping ...";
    try {
      const answer = await fetch("verdict", { method: "POST", body: JSON.stringify({ kernel: which, text: state.texts[which].join("\n") }),
        headers: { "Content-Type": "application/json", "X-Token": new URLSearchParams(location.search).get("token") ?? "" } });
      found = answer.ok ? await answer.json() : { unknown: `The explorer refused the request: ${await answer.text()}.` };
    } catch {
      found = { unknown: "The explorer does not answer. Was it stopped?" };
    }
  }
  if (mine !== asked) return;
  if (found.unknown) {
    byId("verdict").className = "verdict";
    byId("verdict").textContent = found.unknown;
    return;
  }
  state.verdicts[which] = found;
  if (which === state.kernel) {
    text();
    go(found.ok || !found.film.steps.length ? Math.min(state.step, found.film.steps.length - 1) : found.film.steps.length - 1);
  }
}

function change(k, line) {
  state.texts[state.kernel][k] = line;
  text();
  judge();
}

function edit(k) {
  const line = byId("text").children[k];
  if (line.querySelector("input")) return;
  const input = make("input", { value: state.texts[state.kernel][k], "aria-label": `line ${k + 1} of the kernel`, spellcheck: "false" });
  input.addEventListener("keydown", (event) => {
    event.stopPropagation();
    if (event.key === "Enter") change(k, input.value);
    if (event.key === "Escape") text();
    if (event.key === "Enter" || event.key === "Escape") byId("text").children[k].focus();
  });
  line.querySelector(".code").replaceWith(input);
  input.focus();
}

function showVerdict() {
  const found = verdict();
  const box = byId("verdict");
  if (!found) return box.replaceChildren();
  const [style, words] = !found.ok ? ["refused", `refused: ${found.message}`]
    : found.right === null ? ["good", "accepted: no race, and no unwritten cell"]
      : found.right ? ["good", `accepted: no race, no unwritten cell, and the result is ${data.graph ? "what NumPy computes" : "right"}`]
        : ["wrong", `accepted, but the result is wrong: ${found.message}`];
  box.className = `verdict ${style}`;
  box.replaceChildren(make("p", {}, words), ...(found.counts
    ? [make("details", {}, make("summary", {}, "what it moves"), make("pre", {}, found.counts))] : []));
  showOrders(found.orders ?? []);
}

/** A race in two orders of its threads: what the two read and write, and the number that comes of it. */
function showOrders(orders) {
  const told = (right) => (right === null ? "" : right ? "right: " : "wrong: ");
  byId("orders").replaceChildren(...orders.map((order) => make("div", { class: order.right === null ? "" : order.right ? "good" : "wrong" },
    make("p", {}, order.words), make("ol", {}, ...order.did.map((line) => make("li", {}, line))),
    make("p", { class: "number" }, order.number ? `${told(order.right)}${order.number}`
      : "No order that was tried changes a number of these arrays. Nothing promises that for others."))));
}

/** The kernel's lines, each barrier and guard with a button. */
function text() {
  const focused = [...byId("text").children].indexOf(document.activeElement?.closest("#text > li"));
  let started = false;  // empty lines above a kernel are left out
  const removable = new Map(kernel().changes.map((each) => [each.line - 1, each]));
  byId("text").replaceChildren(...kernel().lines.map((line, k) => {
    const own = state.texts[state.kernel][k];
    const item = lineOf("text", { ...line, text: own }, k);
    item.hidden = !started && !own.trim();
    started = started || own.trim() !== "";
    if (isChanged(k)) item.classList.add("changed");
    const one = removable.get(k);
    if (isChanged(k) || one) {
      const words = isChanged(k) ? "put back" : `take out the ${one.what}`;
      item.append(make("button", { "aria-label": `${words}, line ${k + 1}`, tabindex: "-1",
        onclick: () => change(k, isChanged(k) ? line.text : one.text) }, words));
    }
    item.addEventListener("dblclick", () => edit(k));
    return item;
  }));
  byId("restore").hidden = !kernel().lines.some((_, k) => isChanged(k));
  showVerdict();
  if (focused >= 0) byId("text").children[focused].focus();
}

/* ---------------------------------------------------------------- lines that belong together */
function lineOf(pane, line, k) {
  const [code, ...comment] = line.text.split("  # ");
  const item = make("li", { tabindex: k === 0 ? "0" : "-1", "data-nodes": line.nodes.join(" ") },
    make("span", { class: "number" }, pane === "graph" ? "" : `${line.number}`),
    make("span", { class: "code" }, code, ...(comment.length ? [make("span", { class: "comment" }, `  # ${comment.join("  # ")}`)] : [])));
  item.addEventListener("mouseenter", () => link(item));
  item.addEventListener("focus", () => {
    for (const other of byId(pane).children) other.tabIndex = other === item ? 0 : -1;
    link(item);
  });
  return item;
}

const nodesOf = (item) => item.dataset.nodes.split(" ").filter(Boolean);
const linesIn = (pane) => [...byId(pane).children];

/** Mark all lines that share a node with this one, and say which. */
function link(item) {
  const nodes = new Set(nodesOf(item));
  const found = [];
  for (const pane of PANES) {
    const marked = linesIn(pane).filter((line) => nodesOf(line).some((node) => nodes.has(node)));
    for (const line of linesIn(pane)) line.classList.toggle("linked", marked.includes(line));
    const title = { source: "NumPy", graph: "nodes", loop: "loop program", text: "kernel" }[pane];
    if (marked.length) {
      found.push(pane === "graph" ? `nodes ${[...nodes].map((node) => `%${node}`).join(" ")}`
        : `${title} line${marked.length > 1 ? "s" : ""} ${ranges(marked.map((line) => Number(line.querySelector(".number").textContent)))}`);
    }
  }
  byId("linked").textContent = found.join(" · ");
}

/** The arrow keys inside a text. */
function walk(pane, event) {
  const all = linesIn(pane);
  const item = event.target.closest("li");
  const k = all.indexOf(item);
  if (k < 0 || event.target !== item) return;
  let next = null;
  if (event.key === "ArrowDown") next = all[k + 1];
  if (event.key === "ArrowUp") next = all[k - 1];
  if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
    const nodes = new Set(nodesOf(item));
    const turn = event.key === "ArrowRight" ? 1 : PANES.length - 1;
    for (let tries = 1, at = PANES.indexOf(pane); tries < PANES.length && !next; tries += 1) {
      at = (at + turn) % PANES.length;
      const linked = linesIn(PANES[at]).filter((line) => nodesOf(line).some((node) => nodes.has(node)));
      const exact = linked.filter((line) => line.dataset.nodes === item.dataset.nodes);  // rather than a header around it
      next = exact[0] ?? linked[0] ?? null;
    }
  }
  if (pane === "text" && event.key === "Enter") edit(k);
  if (pane === "text" && event.key === "Delete") item.querySelector("button")?.click();
  const ours = event.key.startsWith("Arrow") || (pane === "text" && ["Enter", "Delete"].includes(event.key));
  if (ours) {
    event.preventDefault();
    event.stopPropagation();
  }
  next?.focus();
}

/* ---------------------------------------------------------------- why not */
const chosen = [];  // nodes, at most two

const colour = (owners) => (owners.length ? `k${owners[0] % 8}` : "");
const nameOf = (node) => data.graph[node].text.replace(/^(%\d+): \S+ = (\S+).*/, "$1 $2");

function why() {
  const side = data.sides.strategies[data.strategy];
  byId("why-nodes").replaceChildren(...data.why.nodes.map((node) => make("button", {
    class: `${colour(side.owners[node])} ${side.kinds[side.owners[node][0]]}`, "aria-pressed": chosen.includes(node) ? "true" : "false",
    title: data.graph[node].text, onclick: () => choose(node) }, nameOf(node))));
  if (chosen.length < 2) return byId("why").replaceChildren();
  const [a, b] = [...chosen].sort((x, y) => x - y);
  const pair = data.why.pairs[`${a} ${b}`];
  if (!pair) return byId("why").replaceChildren("In a program of this size, choose two operations of which one reads the other.");
  const [u, v] = pair.cut;
  const said = pair.said.map((number) => make("p", {}, make("code", {}, data.why.decisions[number])));
  const answer = pair.together.length
    ? [make("p", {}, `${nameOf(a)} and ${nameOf(b)} share step ${pair.together.join(" and step ")} of ${data.strategy}.`), ...said]
    : [make("p", {}, `${data.strategy} keeps ${nameOf(a)} and ${nameOf(b)} apart. `, pair.cut.length === 0 || (u === a && v === b) ? ""
      : `On the way from one to the other a kernel ends between ${nameOf(u)} and ${nameOf(v)}.`), ...said,
    ...pair.rules.filter((rule) => data.why.cards[rule]).map((rule) => {
      const [says, change] = data.why.cards[rule];
      return make("div", { class: "card" }, make("p", {}, make("b", {}, rule), `: ${says}`),
        make("p", {}, make("b", {}, "What would have to be different: "), change));
    }), ...(pair.rules.length ? [] : [make("p", {}, "No decision names these two: the strategy never tried to join them.")])];
  byId("why").replaceChildren(...answer, make("p", {}, "What the other strategies do:"),
    make("ul", {}, ...Object.entries(pair.others).sort(([, x], [, y]) => Number(y.fuses) - Number(x.fuses)).map(([name, other]) => make("li", {}, make("b", {}, name), inShort(other)))));
}

/** Whether another strategy fuses the two, in words. */
function inShort({ fuses, said, rules }) {
  const sentence = said.length ? ` ${data.why.decisions[said[0]].replace(/^.*?\] /, "")}` : "";
  if (fuses === null) return " rewrites the graph first, so its operations are others.";
  if (fuses) return ` fuses them.${sentence && `${sentence}.`}`;
  const card = rules.map((rule) => data.why.cards[rule]).find(Boolean);
  return ` keeps them apart. ${card ? card[0] : sentence ? `${sentence}.` : "It never tried to join them."}`;
}

function choose(node) {
  if (chosen.includes(node)) chosen.splice(chosen.indexOf(node), 1);
  else {
    chosen.push(node);
    if (chosen.length > 2) chosen.shift();
  }
  why();
  [...byId("why-nodes").children][data.why.nodes.indexOf(node)].focus();
}

/* ---------------------------------------------------------------- the thread map */
const MAP_ROWS = 12;  // rows that are drawn, and how many cells of each
const MAP_ACROSS = 64;

function map() {
  const rows = data.maps.rows[byId("map-rows").value];
  const columns = data.maps.columns[byId("map-columns").value];
  const found = data.maps.gpus[byId("map-gpu").value][byId("map-rows").value * data.maps.columns.length + Number(byId("map-columns").value)];
  byId("map-rows-said").textContent = rows.toLocaleString("en");
  byId("map-columns-said").textContent = columns.toLocaleString("en");
  byId("map-said").textContent = `${found.blocks.toLocaleString("en")} blocks of ${found.threads} threads (${found.rule}): ${found.why}.`;
  const across = Math.min(columns, MAP_ACROSS);
  const wide = columns / across;  // columns of a drawn cell
  const box = byId("map");
  box.style.setProperty("--across", across);
  const cells = [];
  for (let row = 0; row < Math.min(rows, MAP_ROWS); row += 1) {
    for (let k = 0; k < across; k += 1) {
      const column = Math.floor(k * wide);
      const part = found.splits > 1 ? Math.floor(column / found.chunk) : 0;
      const task = Math.floor(row / found.rows_per_block) * found.splits + part;
      const block = task % found.blocks;
      const thread = (row % found.rows_per_block) * found.threads_per_row + ((column - part * found.chunk) % found.threads_per_row);
      const through = Math.max(column, Math.floor((k + 1) * wide) - 1);
      const many = through > column ? `columns ${column} to ${through}` : `column ${column}`;
      cells.push(make("i", { class: `b${block % 8}${Math.floor(thread / 32) % 2 ? " second" : ""}`, "data-said":
        `row ${row}, ${many}: block ${block}, turn ${Math.floor(task / found.blocks) + 1}, from thread ${thread} on` }));
    }
  }
  box.replaceChildren(...cells);
}

/* ---------------------------------------------------------------- two strategies */
function sides() {
  const names = [byId("left").value, byId("right").value];
  const [left, right] = names.map((name) => data.sides.strategies[name]);
  const row = (cell, ...cells) => make("tr", {}, ...cells.map((each) => (each instanceof Node ? each : make(cell, {}, each))));
  byId("figures").replaceChildren(make("thead", {}, row("th", "", ...names)), make("tbody", {}, ...Object.keys(left.figures).map((what) => {
    const most = Math.max(left.figures[what], right.figures[what], 1);
    return row("th", make("th", {}, what), ...[left, right].map((side) => {
      const bar = make("i");
      bar.style.width = `${(100 * side.figures[what]) / most}%`;
      return make("td", {}, side.figures[what].toLocaleString("en"), what.startsWith("bytes") ? bar : "");
    }));
  })));
  groups(names, left, right);
  texts(names, left, right);
}

/** The nodes that share a kernel with a node, as text to compare. */
const companions = (side, node) => Object.keys(side.owners).filter((other) =>
  side.owners[other].some((owner) => side.owners[node].includes(owner))).join(" ");

function groups(names, left, right) {
  const table = byId("groups");
  if (left.graph.join() !== right.graph.join()) {
    return table.replaceChildren(make("tbody", {}, make("tr", {}, make("td", {}, "One of the two rewrites the graph first, so its operations have other numbers."))));
  }
  const chip = (side, node) => make("td", {}, ...side.owners[node].map((owner) => make("span", {
    class: `chip k${owner % 8} ${side.kinds[owner]}` }, `${side.kinds[owner]} ${owner}`)));
  const nodes = data.why.nodes.filter((node) => left.owners[node] && right.owners[node]);
  table.replaceChildren(make("thead", {}, make("tr", {}, ...["", ...names].map((name) => make("th", {}, name)))),
    make("tbody", {}, ...nodes.map((node) => make("tr", { class: companions(left, node) === companions(right, node) ? "" : "differs" },
      make("th", {}, left.graph[node]), chip(left, node), chip(right, node)))));
}

function texts(names, left, right) {
  const order = Object.keys(data.sides.strategies);
  const swapped = order.indexOf(names[0]) > order.indexOf(names[1]);
  const [first, second] = swapped ? [right, left] : [left, right];
  const codes = data.sides.differences[(swapped ? [...names].reverse() : names).join(" ")]
    ?? [["equal", 0, left.lines.length, 0, left.lines.length]];
  const lines = [[], []];
  const line = (text, number, kind) => make("li", { class: kind }, make("span", { class: "number" }, number), make("span", { class: "code" }, text));
  for (const [kind, a, b, c, d] of codes) {
    for (let k = 0; k < Math.max(b - a, d - c); k += 1) {
      [[first, a, b], [second, c, d]].forEach(([side, from, to], which) => lines[which].push(
        from + k < to ? line(side.lines[from + k], from + k + 1, kind === "equal" ? "" : "only") : line(" ", "", "none")));
    }
  }
  if (swapped) lines.reverse();
  byId("left-text").replaceChildren(...lines[0]);
  byId("right-text").replaceChildren(...lines[1]);
}

/* ---------------------------------------------------------------- the page */
function chooseKernel(which) {
  play(false);
  state.kernel = which;
  state.step = verdict()?.ok === false ? Math.max(0, steps().length - 1) : 0;  // where a refused kernel was refused
  state.thread = -1;
  byId("kernel").value = which;
  byId("loop").replaceChildren(...kernel().loop.map((line, k) => lineOf("loop", line, k)));
  text();
  film();
}

function begin() {
  byId("title").textContent = data.title;
  for (const part of document.querySelectorAll("[data-of]")) part.hidden = !data[part.dataset.of];
  byId("notes").replaceChildren(...data.notes.map((note) => make("li", {}, note)));
  byId("kernel").replaceChildren(...data.kernels.map((each, k) => make("option", { value: k },
    `${k}: ${each.name}, ${each.grid} block${each.grid === 1 ? "" : "s"} of ${each.block} threads`)));
  for (const pane of ["source", "graph"]) byId(pane).replaceChildren(...(data[pane] ?? []).map((line, k) => lineOf(pane, line, k)));
  byId("choice").hidden = data.kernels.length < 2;
  byId("kernel").addEventListener("change", (event) => { chooseKernel(Number(event.target.value)); go(state.step); });
  byId("slider").addEventListener("input", (event) => go(Number(event.target.value) - 1));
  byId("restore").addEventListener("click", () => {
    state.texts[state.kernel] = kernel().lines.map((line) => line.text);
    text();
    judge();
  });
  byId("play").addEventListener("click", () => play(!state.timer));
  byId("speed").addEventListener("change", () => play(state.timer !== 0));
  for (const [id, move] of Object.entries(MOVES)) byId(id).addEventListener("click", () => go(move()));
  for (const pane of PANES) byId(pane).addEventListener("keydown", (event) => walk(pane, event));
  byId("threads").addEventListener("click", (event) => {
    if (event.target.dataset.thread !== undefined) chooseThread(Number(event.target.dataset.thread));
  });
  byId("threads").addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -32, ArrowDown: 32 }[event.key];
    if (by) {
      event.preventDefault();
      event.stopPropagation();
      chooseThread(state.thread + by);
    }
  });
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input, select, textarea");
    if (event.key === " " && !typing && !event.target.closest("button, summary")) {
      event.preventDefault();
      play(!state.timer);
    }
    if (KEYS[event.key] && !typing && !event.ctrlKey && !event.altKey && !event.metaKey) {
      event.preventDefault();
      go(MOVES[KEYS[event.key]]());
    }
  });
  if (data.graph) beginPlans();
  window.addEventListener("hashchange", readAddress);
  if (data.kernels.length) chooseKernel(0);
  else film();
  readAddress();
}

/** The parts about a program and its plans, which the page of a single kernel has not. */
function beginPlans() {
  const names = Object.keys(data.sides.strategies);
  for (const [id, name] of [["left", data.strategy === "none" ? "astitch" : "none"], ["right", data.strategy]]) {
    byId(id).replaceChildren(...names.map((each) => make("option", { value: each }, each)));
    byId(id).value = names.includes(name) ? name : names[0];
    byId(id).addEventListener("change", sides);
  }
  byId("left-text").addEventListener("scroll", () => { byId("right-text").scrollTop = byId("left-text").scrollTop; });
  byId("right-text").addEventListener("scroll", () => { byId("left-text").scrollTop = byId("right-text").scrollTop; });
  why();
  sides();
  for (const [id, values, start] of [["map-rows", data.maps.rows, 6], ["map-columns", data.maps.columns, 6]]) {
    byId(id).max = values.length - 1;
    byId(id).value = start;
    byId(id).addEventListener("input", map);
  }
  byId("map-gpu").replaceChildren(...Object.keys(data.maps.gpus).map((name) => make("option", { value: name }, name)));
  byId("map-gpu").addEventListener("change", map);
  byId("map").addEventListener("mouseover", (event) => { byId("map-cell").textContent = event.target.dataset.said ?? ""; });
  map();
}

function chooseThread(thread) {
  state.thread = Math.max(0, Math.min(kernel().block - 1, thread));
  film();
}

begin();
