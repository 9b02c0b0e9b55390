"use strict";
// Interaction: view, selection, filters, search, panel. Every text of the run enters the page as
// text, never as markup.

const $ = id => document.getElementById(id);
function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, ""); else if (value !== false && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}
let pending = false;
function redraw() {
  if (pending) return;
  pending = true;
  requestAnimationFrame(() => {
    pending = false; draw();
    $("hint").textContent = crowded ? crowded.toLocaleString("en") + " messages in view are not drawn one by one: zoom in" : "";
  });
}

// The view.
const whole = Math.max(1, last - first);
function setView(from, to) {
  const size = Math.max(40, Math.min(whole * 1.1 + 40, to - from));
  const middle = (from + to) / 2;
  let low = middle - size / 2;
  low = Math.max(first - size * 0.5, Math.min(last - size * 0.5, low));
  view.from = low; view.to = low + size;
  redraw();
}
function zoom(factor, x) {
  const at = x === undefined ? (view.selected >= 0 && items[view.selected].at >= view.from && items[view.selected].at <= view.to ? items[view.selected].at : (view.from + view.to) / 2) : timeOf(x);
  setView(at - (at - view.from) * factor, at + (view.to - at) * factor);
}
const fitAll = () => setView(first - whole * 0.02, last + whole * 0.03);
function pan(share) { const size = view.to - view.from; setView(view.from + size * share, view.to + size * share); }
function toViolation() {
  if (!violation) return;
  const before = items[Math.max(0, violation.i - 300)].at, size = Math.max(2000, violation.at - before);
  setView(violation.at - size * 1.05, violation.at + size * 0.12);
  select(violation.i, false);
}
function reveal(item) {
  if (item.at >= view.from && item.at <= view.to) return redraw();
  const size = view.to - view.from;
  setView(item.at - size / 2, item.at + size / 2);
}

// Selection.
function select(i, move) {
  view.selected = i;
  if (i >= 0) {
    if (move !== false) reveal(items[i]);
    $("live").textContent = seconds(items[i].at) + " seconds, " + (items[i].node >= 0 ? nodeName(items[i].node) + ": " : "") + sentence(items[i]);
    history.replaceState(null, "", "#" + i);
  } else history.replaceState(null, "", "#");
  showPanel(); redraw();
}
function stepBy(direction, sameNode) {
  const only = sameNode && view.selected >= 0 && items[view.selected].node >= 0 ? items[view.selected].node : undefined;
  const start = view.selected >= 0 ? view.selected : direction > 0 ? itemIndexAt(view.from) - 1 : itemIndexAt(view.to);
  let next = step(start, direction, only);
  if (next < 0 && found) next = step(direction > 0 ? -1 : items.length, direction, only); // a search goes round
  if (next >= 0) select(next);
}

// The panel.
const FIELDS = [["role", s => s.up ? s.role : s.role], ["term", s => "t" + s.term], ["commit", s => s.commit], ["applied", s => s.applied],
  ["durable", s => "t" + s.durableTerm + ".i" + s.durable], ["last", s => "t" + s.lastTerm + ".i" + s.last]];
function stateTable(item) {
  const after = standing(item.after), before = item.prev >= 0 ? standing(items[item.prev].after) : null;
  if (!after) return [];
  const cell = (state, read, other) => {
    const value = !state ? "" : state.up || read === FIELDS[0][1] ? String(read(state)) : "-";
    const changed = other !== undefined && other !== value;
    return make("td", { class: changed ? "new" : undefined }, value);
  };
  const rows = FIELDS.map(([name, read]) => {
    const was = cell(before, read), now = cell(after, read, before ? was.textContent : undefined);
    return make("tr", {}, make("th", { scope: "row" }, name), was, now);
  });
  return [make("h3", {}, nodeName(item.node) + " before and after"),
    make("table", {}, make("thead", {}, make("tr", {}, make("th"), make("th", { scope: "col" }, "before"), make("th", { scope: "col" }, "after"))), make("tbody", {}, ...rows))];
}
function line(item, current) {
  return make("li", {}, make("button", { onclick: () => select(item.i), title: sentence(item), "aria-current": current ? "true" : undefined },
    make("span", {}, seconds(item.at)), make("span", {}, item.node >= 0 ? nodeName(item.node) : "--"),
    make("span", { class: sentence(item).startsWith("-x") ? "lost" : undefined }, sentence(item))));
}
const list = (title, rows) => rows.length ? [make("h3", {}, title), make("ol", {}, ...rows)] : [];
function linked(item) {
  const parts = [];
  if (item.cls === "sent" || item.cls === "arrived" || item.cls === "missed") {
    const m = messages.get(item.x[0]);
    if (!m) return parts;
    const fate = m.fate.startsWith("lost") ? "It never arrives: " + m.fate + "." : m.end === null ? "It was still on its way at the end." :
      (m.missed ? "It reached a process that was not there any more, " : "It took ") + span(m.end - m.at) + (m.fate ? " (" + m.fate + ")" : "") + ".";
    parts.push(make("p", {}, nodeName(m.from) + " to " + nodeName(m.to) + ". " + fate));
    const other = item.cls === "sent" ? m.arrived : m.item;
    if (other >= 0) parts.push(...list(item.cls === "sent" ? "Arrival" : "Sent", [line(items[other])]));
  }
  const op = ops.find(op => op.item === item.i || (op.answer === item.i && item.cls !== "fault"));
  if (op && (item.cls === "called" || item.cls === "answered" || item.cls === "gaveup")) {
    const how = op.to === null ? "Not answered by the end." : op.result + " after " + span(op.to - op.from) + ".";
    parts.push(make("p", {}, clientName(op.client) + " at " + nodeName(op.node) + ". " + how));
    const other = item.i === op.item ? op.answer : op.item;
    if (other >= 0) parts.push(...list(item.i === op.item ? "Answer" : "Call", [line(items[other])]));
  }
  return parts;
}
function consequences(item) {
  const rows = [];
  if (item.node < 0) return rows;
  for (let n = item.i + 1; n < items.length && items[n].at === item.at && rows.length < 40; n += 1) if (items[n].cause === item.i) rows.push(line(items[n]));
  return rows;
}
function around(item) {
  const rows = [line(item, true)];
  let a = item.i, b = item.i;
  for (let n = 0; n < 6 && a >= 0; n += 1) { a = step(a, -1); if (a >= 0) rows.unshift(line(items[a])); }
  for (let n = 0; n < 9 && b >= 0; n += 1) { b = step(b, 1); if (b >= 0) rows.push(line(items[b])); }
  return rows;
}
function showPanel() {
  const panel = $("panel"), item = items[view.selected];
  if (!item) {
    panel.replaceChildren(make("h2", {}, "Nothing selected"), make("p", { class: "muted" }, "Click an arrow, a mark or a bar, or step with the arrow keys. " +
      "The wheel zooms, dragging moves, the strip below shows the whole run."), ...(items.length ? list("It begins", [line(items[0])]) : []),
      ...(violation ? list("It ends", [line(violation)]) : []));
    return;
  }
  const where = item.node >= 0 ? nodeName(item.node) : "everywhere";
  panel.replaceChildren(
    make("h2", {}, title(item)), make("p", { class: "muted" }, seconds(item.at) + " s, " + where + ", transition " + (item.i + 1).toLocaleString("en") + " of " + items.length.toLocaleString("en")),
    make("p", { class: "what" }, item.text || sentence(item)), ...linked(item), ...stateTable(item),
    ...(item.cause >= 0 ? list("Brought about by", [line(items[item.cause])]) : []), ...list("Brings about", consequences(item)), ...list("Around it", around(item)));
  panel.scrollTop = 0;
}
const TITLES = { story: "Story", sent: "sent", arrived: "arrived", missed: "found nobody", timer: "Timer", began: "job begins", ended: "job ends", fault: "fault",
  relief: "fault over", cut: "Cut", uncut: "Mended", called: "call", answered: "answer", gaveup: "Client gives up", read: "Local read", violated: "violated", guard: "guard", life: "process" };
function title(item) {
  const word = TITLES[item.cls];
  if (item.cls === "inside") return item.kind;
  if (item.cls === "guard") return "Guard " + item.kind;
  return word && word[0] === word[0].toUpperCase() ? word : item.kind + " " + word;
}

// Filters: a check mark for each node, client and kind.
const ORDER = ["Messages", "Inside", "Processes", "Faults", "Clients", "Jobs", "Guard", "Story"];
function kinds() {
  const counts = new Map();
  for (const item of items) {
    if (item.cls === "arrived" || item.cls === "missed" || item.cls === "ended" || item.cls === "violated") continue;
    const key = kindKey(item);
    counts.set(key, (counts.get(key) || 0) + 1);
  }
  const groups = new Map();
  for (const [key, count] of counts) {
    const [group, kind] = key.split(/\/(.*)/);
    groups.set(group, [...(groups.get(group) || []), [kind, key, count]]);
  }
  return groups;
}
function chip(label, count, set, key) {
  const box = make("input", { type: "checkbox", onchange: () => { if (box.checked) set.delete(key); else set.add(key); refilter(); } });
  box.checked = !set.has(key);
  return make("label", { class: "chip" }, box, label, ...(count === undefined ? [] : [make("small", {}, count.toLocaleString("en"))]));
}
function field(name, set, entries) {
  if (!entries.length) return "";
  const all = on => () => { for (const [, key] of entries) if (on) set.delete(key); else set.add(key); refilter(); buildFilters(); };
  return make("fieldset", {}, make("legend", {}, name), ...entries.map(([label, key, count]) => chip(label, count, set, key)),
    make("button", { class: "link", onclick: all(true) }, "all"), make("button", { class: "link", onclick: all(false) }, "none"));
}
function buildFilters() {
  const groups = kinds();
  $("filters").replaceChildren(field("Nodes", filter.nodes, nodes.map((name, n) => [name, n])),
    ...ORDER.filter(group => groups.has(group)).map(group => field(group, filter.kinds, groups.get(group).sort((a, b) => b[2] - a[2]))),
    field("Clients", filter.clients, clientList.map(client => [clientName(client), client])));
}
function refilter() { search(filter.words); showMatches(); place(); chartOf = ""; showPanel(); redraw(); $("open-filters").textContent = filter.nodes.size + filter.kinds.size + filter.clients.size ? "Filter *" : "Filter"; }
function showMatches() { $("matches").textContent = found ? foundCount.toLocaleString("en") + (foundCount === 1 ? " match" : " matches") : ""; }
let typing = 0;
$("search").addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(() => { search($("search").value); showMatches(); showPanel(); redraw(); }, 120);
});
$("search").addEventListener("keydown", event => {
  if (event.key === "Enter") { clearTimeout(typing); search($("search").value); showMatches(); stepBy(event.shiftKey ? -1 : 1); }
  if (event.key === "Escape") { $("search").value = ""; search(""); showMatches(); redraw(); canvas.focus(); }
});
function toggleFilters() {
  const open = $("filters").hidden;
  $("filters").hidden = !open; $("open-filters").setAttribute("aria-expanded", String(open));
  if (open) buildFilters();
  place(); redraw();
}

// The legend.
function sample(paint) {
  const c = make("canvas", {}), ratio = window.devicePixelRatio || 1;
  c.width = 44 * ratio; c.height = 20 * ratio;
  const p = c.getContext("2d");
  p.scale(ratio, ratio); paint(p);
  return c;
}
function showLegend() {
  const entry = (paint, text) => make("li", {}, sample(paint), text);
  const band = role => p => { p.fillStyle = roleFill(role); p.fillRect(0, 3, 44, 14); if (role === "down") { p.strokeStyle = colour.down; p.strokeRect(0.5, 3.5, 43, 13); } };
  const arrow = (tone, dash, tail) => p => { p.strokeStyle = p.fillStyle = colour[tone]; p.lineWidth = 1.6; p.setLineDash(dash); p.beginPath(); p.moveTo(2, 4); p.lineTo(tail ? 26 : 40, tail ? 11 : 16); p.stroke(); p.setLineDash([]);
    p.beginPath(); if (tail) { p.moveTo(23, 8); p.lineTo(30, 15); p.moveTo(30, 8); p.lineTo(23, 15); p.stroke(); } else { p.moveTo(42, 17); p.lineTo(35, 17.5); p.lineTo(37, 12); p.fill(); } };
  const mark = (tone, dash) => p => { p.strokeStyle = colour[tone]; p.lineWidth = 1.8; p.setLineDash(dash); p.beginPath(); p.moveTo(2, 15); p.lineTo(18, 15); p.lineTo(18, 6); p.lineTo(42, 6); p.stroke(); };
  const glyph = name => p => drawGlyph(p, name, 22, 10), bar = fill => p => { p.fillStyle = fill(); p.fillRect(4, 7, 36, 6); };
  const tone = name => () => colour[name], close = make("button", { class: "close", onclick: () => $("legend").close() }, "Close");
  const keys = [["Left, Right", "previous, next transition"], ["Shift + Left, Right", "the same on one node"], ["+, -", "zoom"], ["A, D", "move"], ["0", "the whole run"], ["V", "the violation"], ["/", "find"], ["Enter", "next match"], ["F", "filter"], ["Home, End", "first, last"], ["Esc", "nothing selected"], ["?", "this legend"]];
  $("legend").replaceChildren(close, make("h2", {}, "Legend"),
    make("h3", {}, "Roles, on the band of a node (a bar across it: a new term)"), make("ul", {}, entry(band("leader"), "leader"), entry(band("candidate"), "candidate"), entry(band("pre-candidate"), "pre-candidate"), entry(band("follower"), "follower"), entry(band("down"), "down"), entry(band("forming"), "waits for a cluster")),
    make("h3", {}, "Messages"), make("ul", {}, entry(arrow("append", []), "entries"), entry(arrow("reply", []), "heartbeat, acknowledgement"), entry(arrow("vote", []), "vote"), entry(arrow("snapshot", []), "snapshot"), entry(arrow("forward", []), "forwarded call, read"), entry(arrow("lost", [4, 3], true), "lost"), entry(arrow("append", [9, 3, 2, 3]), "held back, overtaken"), entry(arrow("append", [2, 3]), "duplicate")),
    make("h3", {}, "Positions in the log, in one scale for all nodes"), make("ul", {}, entry(mark("committed", []), "commit"), entry(mark("applied", [1, 2]), "applied"), entry(mark("durable", []), "durable"), entry(mark("last", [2, 2]), "last")),
    make("h3", {}, "On a lane"), make("ul", {}, entry(glyph("role"), "role changes"), entry(glyph("vote"), "vote granted"), entry(glyph("bolt"), "crash"), entry(glyph("warn"), "fault, reopened store"), entry(glyph("flag"), "process starts, forms"), entry(glyph("snap"), "snapshot"), entry(glyph("cutlog"), "log cut"), entry(glyph("eye"), "local read"), entry(glyph("shield"), "guard decides"), entry(glyph("dot"), "odd branch, refusal"),
      entry(bar(tone("pause")), "paused"), entry(bar(tone("stall")), "slow or stuck disk"), entry(bar(tone("full")), "disk full"), entry(p => { p.strokeStyle = colour.cut; p.setLineDash([5, 3]); p.lineWidth = 1.5; p.beginPath(); p.moveTo(3, 10); p.lineTo(41, 10); p.stroke(); }, "cut off"), entry(bar(tone("job-log")), "job on the log"), entry(bar(tone("job-apply")), "job on the store"), entry(bar(tone("job-other")), "other job")),
    make("h3", {}, "Clients"), make("ul", {}, entry(bar(tone("ok")), "answered"), entry(bar(tone("refused")), "refused, no effect"), entry(bar(() => stripes(colour.ground, colour.unknown, 5, false)), "unknown, died"), entry(bar(tone("open")), "waits")),
    make("h3", {}, "Keys"), make("ul", { class: "keys" }, ...keys.map(([key, what]) => make("li", {}, make("kbd", {}, key), what))));
  $("legend").showModal();
}

// Pointer: drag moves, wheel and pinch zoom, click selects.
const fingers = new Map();
let drag = null, pinch = 0;
const local = event => { const box = canvas.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
canvas.addEventListener("pointerdown", event => {
  canvas.setPointerCapture(event.pointerId); fingers.set(event.pointerId, local(event));
  drag = { x: event.clientX, y: event.clientY, from: view.from, to: view.to, scroll: $("scroll").scrollTop, moved: false };
  pinch = 0; $("tip").hidden = true;
});
canvas.addEventListener("pointermove", event => {
  if (fingers.has(event.pointerId)) fingers.set(event.pointerId, local(event));
  if (fingers.size === 2) {
    const [a, b] = [...fingers.values()], apart = Math.max(12, Math.hypot(a[0] - b[0], a[1] - b[1]));
    if (pinch) zoom(pinch / apart, (a[0] + b[0]) / 2);
    pinch = apart; drag.moved = true;
  } else if (drag && fingers.size === 1) {
    const dx = event.clientX - drag.x, dy = event.clientY - drag.y;
    if (Math.abs(dx) + Math.abs(dy) > 4) { drag.moved = true; canvas.classList.add("dragging"); }
    if (drag.moved && !pinch) {
      const shift = dx / (layout.width - layout.gutter) * (drag.to - drag.from);
      setView(drag.from - shift, drag.to - shift); $("scroll").scrollTop = drag.scroll - dy;
    }
  } else if (event.pointerType === "mouse") hover(event);
});
function lift(event) {
  fingers.delete(event.pointerId); canvas.classList.remove("dragging");
  if (drag && !drag.moved && event.type === "pointerup") { const [x, y] = local(event); const i = pick(x, y); select(i, false); }
  if (!fingers.size) { drag = null; pinch = 0; }
}
canvas.addEventListener("pointerup", lift);
canvas.addEventListener("pointercancel", lift);
canvas.addEventListener("pointerleave", () => { $("tip").hidden = true; });
function hover(event) {
  const [x, y] = local(event), i = pick(x, y), tip = $("tip");
  canvas.style.cursor = i >= 0 ? "pointer" : "";
  if (i < 0) { tip.hidden = true; return; }
  const item = items[i];
  tip.replaceChildren(make("b", {}, seconds(item.at) + (item.node >= 0 ? " " + nodeName(item.node) : "")), " " + sentence(item).slice(0, 260));
  tip.hidden = false;
  const stage = $("stage").getBoundingClientRect(), left = event.clientX - stage.left, top = event.clientY - stage.top;
  tip.style.left = Math.max(4, Math.min(stage.width - tip.offsetWidth - 6, left + 14)) + "px";
  tip.style.top = (top + 18 + tip.offsetHeight > stage.height - 50 ? top - tip.offsetHeight - 10 : top + 18) + "px";
}
canvas.addEventListener("wheel", event => {
  event.preventDefault();
  if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan((event.deltaX || event.deltaY) / 900);
  else zoom(Math.exp(Math.max(-240, Math.min(240, event.deltaY * (event.deltaMode ? 30 : 1))) / 480), local(event)[0]);
  $("tip").hidden = true;
}, { passive: false });
let mapHeld = false;
function mapTo(event) {
  const box = mapCanvas.getBoundingClientRect(), at = first + (event.clientX - box.left) / box.width * whole, half = (view.to - view.from) / 2;
  setView(at - half, at + half);
}
mapCanvas.addEventListener("pointerdown", event => {
  mapHeld = true; mapCanvas.setPointerCapture(event.pointerId);
  if (view.to - view.from > whole * 0.6) { const half = whole * 0.06; view.from = 0; view.to = 2 * half; }
  mapTo(event);
});
mapCanvas.addEventListener("pointermove", event => { if (mapHeld) mapTo(event); });
for (const name of ["pointerup", "pointercancel"]) mapCanvas.addEventListener(name, () => { mapHeld = false; });
mapCanvas.addEventListener("wheel", event => { event.preventDefault(); zoom(Math.exp(event.deltaY / 480)); }, { passive: false });

// Keys.
document.addEventListener("keydown", event => {
  if (event.target.matches("input") || event.ctrlKey || event.metaKey || event.altKey || $("legend").open) return;
  const act = { ArrowLeft: () => stepBy(-1, event.shiftKey), ArrowRight: () => stepBy(1, event.shiftKey), "+": () => zoom(0.6), "=": () => zoom(0.6), "-": () => zoom(1 / 0.6),
    a: () => pan(-0.2), d: () => pan(0.2), 0: fitAll, v: toViolation, f: toggleFilters, "/": () => $("search").focus(), "?": showLegend, Escape: () => select(-1),
    Home: () => { const i = step(-1, 1); if (i >= 0) select(i); }, End: () => { const i = step(items.length, -1); if (i >= 0) select(i); } }[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (act) { event.preventDefault(); act(); }
});
const on = (id, act) => $(id).addEventListener("click", act);
on("prev", () => stepBy(-1)); on("next", () => stepBy(1)); on("zoom-in", () => zoom(0.6)); on("zoom-out", () => zoom(1 / 0.6));
on("fit", fitAll); on("to-violation", toViolation); on("open-filters", toggleFilters); on("open-legend", showLegend);
on("theme", () => setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
function setTheme(name) { document.documentElement.dataset.theme = name; readColours(); mapImage = null; redraw(); }
const dark = matchMedia("(prefers-color-scheme: dark)");
dark.addEventListener("change", () => setTheme(dark.matches ? "dark" : "light"));

function begin() {
  document.title = raw.title ? raw.title + " - Holdfast trace" : "Holdfast trace";
  $("title").textContent = raw.title || "Trace";
  $("verdict").textContent = violation ? "A property was violated" : "Every property held";
  $("verdict").className = violation ? "bad" : "good";
  $("facts").append(...raw.facts.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
  if (violation) {
    $("banner").hidden = false; $("to-violation").hidden = false;
    $("banner-property").textContent = violation.kind; $("banner-evidence").textContent = violation.text; $("banner-full").textContent = violation.text;
  }
  document.documentElement.dataset.theme = dark.matches ? "dark" : "light";
  readColours(); place(); fitAll(); showPanel();
  new ResizeObserver(() => { place(); redraw(); }).observe($("scroll"));
  const asked = Number.parseInt(location.hash.slice(1), 10);
  if (items[asked]) { const size = whole / 20; setView(items[asked].at - size, items[asked].at + size); select(asked); }
  // A story is seen whole; a failure of a campaign where it failed.
  else if (violation && stories.some(item => item.cls === "guard")) select(violation.i, false);
  else if (violation) toViolation();
  $("banner").addEventListener("toggle", () => { place(); redraw(); });
}
begin();
