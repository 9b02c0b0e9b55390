"use strict";
// Draws what the view shows. What can be pointed at is noted in `picks` while it is drawn.

const canvas = document.getElementById("canvas"), pen = canvas.getContext("2d");
const mapCanvas = document.getElementById("map"), mapPen = mapCanvas.getContext("2d");
const view = { from: first, to: last, selected: -1, hover: -1 };
// Above this many messages in view, only the telling ones are arrows and the rest is a density.
const ARROWS_MAX = 1500, TELLING_MAX = 500;
const AXIS = 26;
let colour = {}, layout = null, picks = [], mapImage = null, crowded = 0;

function readColours() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["ground", "paper", "ink", "quiet", "line", "lane", "accent", "focus", "bad", "leader", "leader-ink", "candidate",
    "candidate-ink", "pre", "pre-ink", "follower", "follower-ink", "down", "forming", "append", "reply", "vote", "snapshot", "forward",
    "lost", "committed", "durable", "applied", "last", "pause", "stall", "full", "cut", "job-log", "job-apply", "job-other", "ok",
    "refused", "unknown", "open"]) colour[name] = style.getPropertyValue("--" + name).trim();
  patterns.clear();
}
const patterns = new Map();
// Stripes, so that a state is told by more than its colour.
function stripes(ground, line, gap, both) {
  const key = [ground, line, gap, both].join();
  if (patterns.has(key)) return patterns.get(key);
  const scale = 2, tile = document.createElement("canvas");
  tile.width = tile.height = gap * scale;
  const p = tile.getContext("2d");
  p.fillStyle = ground; p.fillRect(0, 0, gap * scale, gap * scale);
  p.strokeStyle = line; p.lineWidth = scale * 1.1; p.beginPath();
  for (const shift of [-1, 0, 1]) {
    p.moveTo(shift * gap * scale, gap * scale); p.lineTo((shift + 1) * gap * scale, 0);
    if (both) { p.moveTo(shift * gap * scale, 0); p.lineTo((shift + 1) * gap * scale, gap * scale); }
  }
  p.stroke();
  const pattern = pen.createPattern(tile, "repeat");
  pattern.setTransform(new DOMMatrix().scale(1 / scale));
  patterns.set(key, pattern);
  return pattern;
}
function roleFill(role) {
  switch (role) {
    case "leader": return colour.leader;
    case "candidate": return stripes(colour.candidate, colour["candidate-ink"] + "55", 7, false);
    case "pre-candidate": return stripes(colour.pre, colour["pre-ink"] + "55", 10, false);
    case "follower": return colour.follower;
    case "forming": return colour.forming;
    default: return stripes(colour.ground, colour.down, 6, true);
  }
}
const roleInk = role => ({ leader: colour["leader-ink"], candidate: colour["candidate-ink"], "pre-candidate": colour["pre-ink"],
  follower: colour["follower-ink"] })[role] || colour.quiet;

// Places of the lanes, for the size of the stage.
function place() {
  const box = document.getElementById("scroll").getBoundingClientRect();
  const width = Math.max(200, Math.floor(box.width)), room = Math.max(120, Math.floor(box.height));
  const gutter = width < 520 ? 44 : 66;
  const lanes = nodes.map((_, n) => n).filter(n => !filter.nodes.has(n));
  const story = stories.length ? 30 : 0;
  const rows = Math.min(8, clientList.length), clients = rows ? Math.max(22, rows * 8 + 10) : 0;
  const each = Math.max(58, Math.min(150, (room - AXIS - story - clients) / Math.max(1, lanes.length)));
  const height = Math.max(room, Math.round(AXIS + story + clients + each * lanes.length));
  const top = AXIS + story, y = new Map();
  lanes.forEach((node, row) => y.set(node, top + row * each));
  layout = { width, height, gutter, lanes, y, each, story, storyY: AXIS, rows, clients, clientsY: top + each * lanes.length,
    strip: 3, stripHeight: 11, band: 17, bandHeight: each < 70 ? 14 : 18 };
  layout.mid = layout.band + layout.bandHeight / 2;
  const ratio = window.devicePixelRatio || 1;
  for (const [target, w, h] of [[canvas, width, height], [mapCanvas, mapCanvas.clientWidth, mapCanvas.clientHeight]]) {
    if (target.width !== Math.round(w * ratio) || target.height !== Math.round(h * ratio)) {
      target.width = Math.round(w * ratio); target.height = Math.round(h * ratio);
    }
    target.getContext("2d").setTransform(ratio, 0, 0, ratio, 0, 0);
  }
  canvas.style.height = height + "px";
  mapImage = null;
}
const xOf = at => layout.gutter + (at - view.from) / (view.to - view.from) * (layout.width - layout.gutter);
const timeOf = x => view.from + (x - layout.gutter) / (layout.width - layout.gutter) * (view.to - view.from);
const clampX = x => Math.max(layout.gutter - 2, Math.min(layout.width + 2, x));
const font = (size, weight) => (weight || 400) + " " + size + "px system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'Liberation Sans', sans-serif";
function words(text, x, y, ink, size, weight, align) {
  pen.font = font(size, weight); pen.fillStyle = ink; pen.textAlign = align || "left"; pen.textBaseline = "middle";
  pen.fillText(text, x, y);
}
// The text, or as much of it as fits, or nothing.
function fitting(text, room, size, weight) {
  pen.font = font(size, weight);
  if (pen.measureText(text).width <= room) return text;
  if (room < 26) return "";
  let cut = Math.max(1, Math.floor(text.length * room / pen.measureText(text).width) - 1);
  return text.slice(0, cut).trimEnd() + "\u2026";
}
const dim = item => found && !found[item.i];

function draw() {
  if (!layout) place();
  const { width, height } = layout;
  picks = []; labels = [];
  pen.globalAlpha = 1; pen.setLineDash([]);
  pen.fillStyle = colour.ground; pen.fillRect(0, 0, width, height);
  drawLanes();
  pen.save();
  pen.beginPath(); pen.rect(layout.gutter, 0, width - layout.gutter, height); pen.clip();
  drawGrid();
  for (const node of layout.lanes) { drawRuns(node); drawChart(node); }
  drawJobs(); drawSpans(); drawCuts(); drawMessages(); drawPoints(); drawClients(); drawStory(); drawViolation(); drawSelected();
  pen.restore();
  for (const [, value, y] of labels) words("i" + value, layout.gutter - 6, y, colour.quiet, 9, 400, "right");
  drawAxis(); labelViolation(); drawMap();
}

function drawLanes() {
  const { lanes, y, each, width, gutter } = layout;
  lanes.forEach((node, row) => {
    const top = y.get(node);
    if (row % 2 === 0) { pen.fillStyle = colour.lane; pen.fillRect(0, top, width, each); }
    words(fitting(nodes[node], gutter - 12, 13, 650), 10, top + layout.mid, colour.ink, 13, 650);
    if (each >= 70) {
      const at = standingAt(node, view.selected >= 0 ? items[view.selected].at : view.to);
      words(at ? (at.up ? "t" + at.term : at.role) : "", 10, top + layout.mid + 16, colour.quiet, 11);
    }
  });
  if (layout.story) words("story", 10, layout.storyY + 15, colour.quiet, 11);
  if (layout.clients) words(width < 520 ? "clnts" : "clients", 10, layout.clientsY + 12, colour.quiet, 11);
}
function standingAt(node, at) {
  const list = runs[node], after = lower(list, at + 1e-9, atOf);
  const run = list[at >= last ? list.length - 1 : after - 1] || list[after - 1];
  return run ? run.state : null;
}

function stepOfTicks() {
  const wantedTicks = Math.max(2, Math.floor((layout.width - layout.gutter) / 110));
  const rough = (view.to - view.from) / wantedTicks, power = Math.pow(10, Math.floor(Math.log10(rough)));
  return Math.max(1, [1, 2, 5, 10].map(n => n * power).find(n => n >= rough));
}
function drawGrid() {
  const step = stepOfTicks();
  pen.strokeStyle = colour.line; pen.lineWidth = 1; pen.beginPath();
  for (let t = Math.ceil(view.from / step) * step; t <= view.to; t += step) {
    const x = Math.round(xOf(t)) + 0.5;
    pen.moveTo(x, AXIS - 4); pen.lineTo(x, layout.height);
  }
  pen.stroke();
}
function drawAxis() {
  const step = stepOfTicks(), digits = Math.max(0, Math.min(6, Math.ceil(6 - Math.log10(step) - 1e-9)));
  pen.fillStyle = colour.paper; pen.fillRect(0, 0, layout.width, AXIS - 4);
  pen.fillStyle = colour.line; pen.fillRect(0, AXIS - 4, layout.width, 1); pen.fillRect(layout.gutter - 1, AXIS - 4, 1, layout.height);
  for (let t = Math.ceil(view.from / step) * step; t <= view.to; t += step) {
    const x = xOf(t);
    if (x > layout.gutter + 12 && x < layout.width - 20) words(seconds(t, digits), x, 11, colour.quiet, 11, 400, "center");
  }
  words("seconds", 10, 11, colour.quiet, 11);
}

// The standings of a node: a band by role, a label by term.
function drawRuns(node) {
  const list = runs[node], top = layout.y.get(node) + layout.band, h = layout.bandHeight;
  let at = Math.max(0, lower(list, view.from, atOf) - 1), started = null, barFrom = 0;
  const flush = (state, from, to) => {
    const a = clampX(from), b = clampX(to), w = b - a;
    if (w <= 0) return;
    pen.fillStyle = roleFill(state.role); pen.fillRect(a, top, Math.max(w, 0.7), h);
    if (state.role === "leader") { pen.fillStyle = colour.leader; pen.fillRect(a, top - 3, Math.max(w, 0.7), 3); }
    if (state.role === "down" || state.role === "forming") { pen.strokeStyle = colour.down; pen.lineWidth = 1; pen.strokeRect(a + 0.5, top + 0.5, Math.max(0, w - 1), h - 1); }
    const label = state.up ? (state.role === "follower" ? "t" + state.term : state.role + " t" + state.term) : state.role;
    const room = w - 22, ink = roleInk(state.role), short = state.up ? "t" + state.term : "";
    pen.font = font(11, 600);
    const text = pen.measureText(label).width <= room ? label : (pen.measureText(short).width <= room ? short : "");
    if (text) {
      const left = a + (from < layout.gutter ? 7 : 12);
      if (!state.up) { const m = pen.measureText(text).width; pen.fillStyle = colour.ground; pen.fillRect(left - 3, top + 2, m + 6, h - 4); }
      words(text, left, top + h / 2 + 0.5, ink, 11, state.role === "follower" ? 400 : 600);
    }
  };
  for (; at <= list.length; at += 1) {
    const run = list[at], x = run ? xOf(run.at) : xOf(Math.max(last, first));
    const changed = !run || !started || run.state.role !== started.role || run.state.term !== started.term;
    if (!changed) continue;
    if (started) {
      flush(started, barFrom, x);
      if (run && started.up && run.state.up && run.state.term !== started.term && x > layout.gutter) {
        pen.fillStyle = colour.ink; pen.fillRect(Math.round(x), top - 4, 1.5, h + 8);
      }
    }
    if (!run || x > layout.width) break;
    started = run.state; barFrom = x;
  }
}

// Last, durable, commit and applied of a node as lines over time, in one scale for all lanes.
function scaleOfCharts() {
  let low = Infinity, high = 0;
  for (const node of layout.lanes) {
    const list = runs[node], from = Math.max(0, lower(list, view.from, atOf) - 1), to = lower(list, view.to, atOf);
    const stride = Math.max(1, Math.floor((to - from) / 400));
    for (let n = from; n <= to; n += stride) {
      const run = list[Math.min(n, to, list.length - 1)];
      if (run && run.state.up && run.at <= view.to) {
        low = Math.min(low, run.state.applied, run.state.commit); high = Math.max(high, run.state.last, run.state.commit);
      }
    }
  }
  return low > high ? [0, 1] : [low, Math.max(high, low + 4)];
}
const MARKS = [["last", "last", [2, 2], 1], ["durable", "durable", [], 1.2], ["applied", "applied", [1, 2], 1.6], ["committed", "commit", [], 1.8]];
let chartScale = [0, 1], chartOf = "", labels = [];
function drawChart(node) {
  const top = layout.y.get(node) + layout.band + layout.bandHeight + 6, bottom = layout.y.get(node) + layout.each - 14;
  if (bottom - top < 14) return;
  const key = view.from + "/" + view.to + "/" + layout.lanes.length;
  if (chartOf !== key) { chartScale = scaleOfCharts(); chartOf = key; }
  const [low, high] = chartScale;
  if (bottom - top > 34) {
    labels.push([node, high, top + 4], [node, low, bottom - 2]);
  }
  const list = runs[node], yOf = value => bottom - Math.max(0, Math.min(1, (value - low) / (high - low))) * (bottom - top);
  const from = Math.max(0, lower(list, view.from, atOf) - 1);
  for (const [name, field, dash, thick] of MARKS) {
    pen.strokeStyle = colour[name]; pen.lineWidth = thick; pen.setLineDash(dash); pen.beginPath();
    let level = null, lastPixel = -9;
    for (let n = from; n < list.length; n += 1) {
      const run = list[n], x = clampX(xOf(run.at));
      if (run.at > view.to) break;
      if (!run.state.up) { if (level !== null) pen.lineTo(x, yOf(level)); level = null; continue; }
      const value = run.state[field];
      if (value === level) continue;
      if (level === null) pen.moveTo(x, yOf(value));
      else if (x - lastPixel >= 0.5 || value < level) { pen.lineTo(x, yOf(level)); pen.lineTo(x, yOf(value)); }
      else continue;
      level = value; lastPixel = x;
    }
    const end = list.length ? runs[node][list.length - 1] : null;
    if (level !== null && end) pen.lineTo(clampX(xOf(Math.min(last, view.to))), yOf(level));
    pen.stroke();
  }
  pen.setLineDash([]);
}

function drawJobs() {
  if (filterAll("Jobs")) return;
  const rows = { log: 0, apply: 1 };
  const from = lower(jobReach, view.from, same), to = lower(jobs, view.to, fromOf);
  let pixel = new Map();
  for (let n = from; n < to; n += 1) {
    const job = jobs[n];
    if (!layout.y.has(job.node) || filter.kinds.has("Jobs/" + job.kind)) continue;
    const end = job.to === null ? Math.min(last, view.to) : job.to;
    if (end < view.from) continue;
    const row = rows[job.lane] === undefined ? 2 : rows[job.lane], a = clampX(xOf(job.from)), b = clampX(xOf(end));
    const y = layout.y.get(job.node) + layout.each - 12 + row * 4, key = job.node * 4 + row;
    if (b - a < 1 && Math.floor(a) === pixel.get(key)) continue;
    pixel.set(key, Math.floor(a));
    pen.globalAlpha = dim(items[job.item]) ? 0.25 : 0.9;
    pen.fillStyle = colour[["job-log", "job-apply", "job-other"][row]];
    pen.fillRect(a, y, Math.max(0.8, b - a), 3);
    if (b - a > 4) picks.push({ rect: [a, y - 1, b - a, 5], item: job.item });
  }
  pen.globalAlpha = 1;
}
const filterAll = group => filter.kinds.has(group);

const SPANS = { pause: ["pause", "paused"], stall: ["stall", "slow disk"], "disk-full": ["full", "disk full"], stuck: ["stall", "lane stuck"] };
function drawSpans() {
  const levels = new Map();
  for (const span of spans) {
    if (span.from > view.to) break;
    const to = Math.min(span.to, last);
    if (to < view.from || !layout.y.has(span.node) || filter.kinds.has("Faults/" + span.kind)) continue;
    const [tone, label] = SPANS[span.kind] || ["full", span.kind];
    const a = clampX(xOf(span.from)), b = clampX(xOf(to)), top = layout.y.get(span.node);
    pen.globalAlpha = 0.13; pen.fillStyle = colour[tone]; pen.fillRect(a, top, Math.max(1, b - a), layout.each);
    pen.globalAlpha = 1; pen.fillStyle = colour[tone]; pen.fillRect(a, top + layout.strip, Math.max(1.5, b - a), 3);
    const clear = a + 4 > (levels.get(span.node) || -9), text = clear ? fitting(label, b - a - 8, 10, 600) : "";
    if (text) { words(text, a + 4, top + layout.strip + 9, colour[tone], 10, 600); levels.set(span.node, a + 8 + pen.measureText(text).width); }
    picks.push({ rect: [a, top, Math.max(3, b - a), layout.stripHeight + 3], item: span.item, weak: true });
  }
}

// A cut is a dashed line at the edge of the lanes it parts.
function drawCuts() {
  if (filter.kinds.has("Faults/cut")) return;
  const per = new Map();
  for (const cut of cuts) {
    if (cut.from > view.to) break;
    if (Math.min(cut.to, last) < view.from || !layout.y.has(cut.a) || !layout.y.has(cut.b)) continue;
    for (const [node, other, out] of [[cut.a, cut.b, true], [cut.b, cut.a, false]]) {
      const key = node + "/" + cut.item + "/" + cut.to;
      const entry = per.get(key) || { node, from: cut.from, to: cut.to, item: cut.item, out: new Set(), into: new Set() };
      (out ? entry.out : entry.into).add(other);
      per.set(key, entry);
    }
  }
  const rows = new Map();
  pen.setLineDash([5, 3]); pen.lineWidth = 1.5; pen.strokeStyle = colour.cut;
  for (const entry of per.values()) {
    const a = clampX(xOf(entry.from)), b = clampX(xOf(Math.min(entry.to, last)));
    const taken = (rows.get(entry.node) || []).filter(end => end > a).length;
    rows.set(entry.node, [...(rows.get(entry.node) || []), b]);
    const y = layout.y.get(entry.node) + layout.band + layout.bandHeight + 3 + Math.min(2, taken) * 3;
    pen.beginPath(); pen.moveTo(a, y); pen.lineTo(Math.max(b, a + 2), y); pen.stroke();
    const names = list => [...list].map(nodeName).join(" ");
    const whole = [...entry.out].every(n => entry.into.has(n)) && entry.out.size === entry.into.size;
    const label = whole ? "cut from " + names(entry.out) : (entry.out.size ? "cannot reach " + names(entry.out) : "cannot hear " + names(entry.into));
    pen.font = font(10, 500);
    if (taken === 0 && pen.measureText(label).width < b - a - 10) words(label, a + 4, y + 8, colour.cut, 10, 500);
    picks.push({ rect: [a, y - 3, Math.max(4, b - a), 7], item: entry.item, weak: true });
  }
  pen.setLineDash([]);
}

const UNCONNECTED = "lost: no connection";
// The most telling messages first: votes and what found nobody, snapshots, the lost, the disordered.
const TELLING = [m => m.missed || m.family === "vote", m => m.family === "snapshot", m => m.fate === "lost" || m.fate === "lost: cut", m => m.fate !== "" && m.fate !== UNCONNECTED];
function tellings(list) {
  const chosen = [], taken = new Set();
  for (const wantedHere of TELLING) {
    const more = thinned(list.filter(m => wantedHere(m) && !taken.has(m)));
    if (chosen.length + more.length > TELLING_MAX) break;
    for (const m of more) { chosen.push(m); taken.add(m); }
  }
  return chosen;
}
function drawMessages() {
  const from = lower(sentReach, view.from, same), to = lower(sent, view.to, atOf);
  const list = [];
  for (let n = from; n < to; n += 1) {
    const m = sent[n];
    if (m.until < view.from || !layout.y.has(m.from) || !layout.y.has(m.to) || filter.kinds.has("Messages/" + m.kind)) continue;
    list.push(m);
  }
  crowded = 0;
  let arrows = list;
  if (list.length > ARROWS_MAX) {
    arrows = found ? list.filter(m => found[m.item] || (m.arrived >= 0 && found[m.arrived])) : tellings(list);
    if (arrows.length > ARROWS_MAX) arrows = thinned(arrows);
    crowded = list.length - arrows.length;
    drawDensity(list);
  }
  const busy = Math.min(1, 260 / Math.max(1, arrows.length));
  for (const m of arrows) drawArrow(m, 0.35 + 0.55 * busy);
  if (!crowded && arrows.length <= 30) labelArrows(arrows.filter(m => !found || found[m.item] || (m.arrived >= 0 && found[m.arrived])));
}
// Names the arrows, where there is room for it.
function labelArrows(list) {
  const taken = [];
  pen.font = font(10, 500);
  for (const m of list) {
    const [x1, y1, x2, y2] = ends(m), lost = m.fate.startsWith("lost"), text = m.kind + (m.fate && !lost ? " (" + m.fate + ")" : "");
    const [ex, ey] = lost ? stub(x1, y1, x2, y2) : [x2, y2], w = pen.measureText(text).width;
    for (const share of lost ? [0.9] : [0.24, 0.5, 0.76]) {
      const x = x1 + (ex - x1) * share + 6, y = y1 + (ey - y1) * share;
      const free = x > layout.gutter && x + w < layout.width && taken.every(([a, b, c]) => Math.abs(b - y) > 12 || x > c + 4 || x + w < a - 4);
      if (!free) continue;
      pen.globalAlpha = 0.8; pen.fillStyle = colour.ground; pen.fillRect(x - 2, y - 6, w + 4, 12); pen.globalAlpha = 1;
      words(text, x, y, lost ? colour.lost : colour[m.family === "reply" ? "quiet" : m.family], 10, 500);
      taken.push([x, y, x + w]);
      break;
    }
  }
}
// At most one arrow for each pair of lanes, fate and two pixels.
function thinned(list) {
  const seen = new Set();
  return list.filter(m => {
    const key = m.from + "/" + m.to + "/" + m.fate + "/" + m.family + "/" + Math.floor(xOf(m.at) / 2);
    return seen.has(key) ? false : seen.add(key);
  });
}
function drawDensity(list) {
  const width = 4, counts = new Map();
  let most = 1;
  for (const m of list) {
    for (const [node, at] of [[m.from, m.at]]) {
      const key = node * 10000 + Math.floor((xOf(at) - layout.gutter) / width), n = (counts.get(key) || 0) + 1;
      counts.set(key, n); most = Math.max(most, n);
    }
  }
  pen.fillStyle = colour.append;
  for (const [key, n] of counts) {
    const node = Math.floor(key / 10000), column = key % 10000, h = 2 + 9 * Math.sqrt(n / most);
    pen.globalAlpha = 0.45;
    pen.fillRect(layout.gutter + column * width, layout.y.get(node) + layout.band + layout.bandHeight + 1, width - 1, h);
  }
  pen.globalAlpha = 1;
}
function ends(m) {
  const down = layout.lanes.indexOf(m.to) > layout.lanes.indexOf(m.from);
  const a = layout.y.get(m.from) + layout.band + (down ? layout.bandHeight : 0);
  const b = layout.y.get(m.to) + layout.band + (down ? 0 : layout.bandHeight);
  return [xOf(m.at), a, xOf(m.until), b];
}
function drawArrow(m, alpha) {
  let [x1, y1, x2, y2] = ends(m);
  if (x2 < layout.gutter || x1 > layout.width) return;
  const lost = m.fate.startsWith("lost"), tone = lost ? colour.lost : colour[m.family], item = items[m.item];
  const faint = found && !(found[m.item] || (m.arrived >= 0 && found[m.arrived]));
  pen.globalAlpha = faint ? 0.12 : m.fate === UNCONNECTED ? 0.35 : (lost || m.missed ? Math.max(0.8, alpha) : m.fate ? Math.max(0.6, alpha) : m.family === "reply" ? alpha * 0.75 : alpha);
  pen.strokeStyle = tone; pen.fillStyle = tone; pen.lineWidth = m.family === "reply" || lost ? 1 : 1.4;
  if (lost) [x2, y2] = stub(x1, y1, x2, y2);
  pen.setLineDash(lost ? [4, 3] : m.fate === "held back" ? [9, 3, 2, 3] : m.fate === "duplicate" ? [2, 3] : []);
  if (m.fate === "held back" || m.fate === "duplicate") pen.lineWidth = 1.8;
  pen.beginPath(); pen.moveTo(x1, y1); pen.lineTo(x2, y2); pen.stroke();
  pen.setLineDash([]);
  if (lost) cross(x2, y2, m.fate === UNCONNECTED ? 2.5 : 4);
  else if (m.missed) { pen.beginPath(); pen.arc(x2, y2, 3.5, 0, 7); pen.stroke(); cross(x2, y2, 2.5); }
  else if (m.end !== null) head(x1, y1, x2, y2, 5.5);
  pen.globalAlpha = 1;
  if (!faint) picks.push({ line: [x1, y1, x2, y2], item: m.item, other: m.arrived });
  return item;
}
// Where a lost message ends: on its way, but near its sender.
function stub(x1, y1, x2, y2) {
  const share = Math.min(0.5, 30 / Math.max(1, Math.abs(y2 - y1)));
  return [x1 + (x2 - x1) * share, y1 + (y2 - y1) * share];
}
function cross(x, y, r) {
  pen.lineWidth = 1.7; pen.beginPath();
  pen.moveTo(x - r, y - r); pen.lineTo(x + r, y + r); pen.moveTo(x - r, y + r); pen.lineTo(x + r, y - r); pen.stroke();
}
function head(x1, y1, x2, y2, size) {
  const angle = Math.atan2(y2 - y1, x2 - x1);
  pen.beginPath(); pen.moveTo(x2, y2);
  pen.lineTo(x2 - size * Math.cos(angle - 0.42), y2 - size * Math.sin(angle - 0.42));
  pen.lineTo(x2 - size * Math.cos(angle + 0.42), y2 - size * Math.sin(angle + 0.42));
  pen.closePath(); pen.fill();
}

// Glyphs on the lane: what happened inside, to a process, to a disk, by the guard.
function glyphOf(item) {
  switch (item.cls) {
    case "guard": return "shield";
    case "fault": return item.after === -2 ? "bolt" : "warn";
    case "relief": return "";
    case "read": return "eye";
    case "life": return item.kind === "connects" ? "" : "flag";
    case "inside": return ({ role: "role", vote: "vote", "step-down": "role", truncate: "cutlog", install: "snap", snapshot: "snap",
      dropped: "dot", mark: "dot", "log-reopened": "warn", "store-reopened": "warn", headroom: "warn", "no-quorum": "warn" })[item.kind] || "";
    default: return "";
  }
}
const RANK = { shield: 5, bolt: 4, warn: 3, role: 3, cutlog: 3, snap: 2, flag: 2, vote: 2, eye: 1, dot: 0 };
function drawPoints() {
  const from = lower(points, view.from, atOf), to = lower(points, view.to + 1, atOf);
  const best = new Map();
  for (let n = from; n < to; n += 1) {
    const item = points[n], glyph = glyphOf(item);
    if (!glyph || !layout.y.has(item.node) || !shown(item)) continue;
    const x = xOf(item.at), key = item.node * 100000 + Math.floor(x / 9), rank = RANK[glyph] + (found && found[item.i] ? 10 : 0);
    const old = best.get(key);
    if (!old || rank > old.rank) best.set(key, { item, glyph, x, rank, more: old ? old.more + 1 : 0 });
    else old.more += 1;
  }
  for (const { item, glyph, x } of best.values()) {
    const y = layout.y.get(item.node) + layout.mid;
    pen.globalAlpha = dim(item) ? 0.25 : 1;
    drawGlyph(pen, glyph, x, y);
    pen.globalAlpha = 1;
    picks.push({ point: [x, y], item: item.i });
  }
}
function drawGlyph(p, glyph, x, y) {
  p.lineWidth = 1.3; p.setLineDash([]); p.strokeStyle = colour.ink; p.fillStyle = colour.paper;
  p.beginPath();
  if (glyph === "dot") { p.arc(x, y, 2, 0, 7); p.fill(); p.lineWidth = 0.8; p.stroke(); return; }
  if (glyph === "vote") { p.arc(x, y, 4.5, 0, 7); p.fill(); p.strokeStyle = colour.vote; p.stroke(); p.beginPath(); p.moveTo(x - 2.2, y); p.lineTo(x - 0.5, y + 2); p.lineTo(x + 2.5, y - 2); p.stroke(); return; }
  if (glyph === "eye") { p.arc(x, y, 2.8, 0, 7); p.fill(); p.strokeStyle = colour.ok; p.stroke(); return; }
  if (glyph === "role") { p.moveTo(x, y - 5.5); p.lineTo(x + 5.5, y); p.lineTo(x, y + 5.5); p.lineTo(x - 5.5, y); p.closePath(); p.fill(); p.stroke(); return; }
  if (glyph === "flag") { p.moveTo(x - 3, y + 5.5); p.lineTo(x - 3, y - 5.5); p.lineTo(x + 4.5, y - 2.5); p.lineTo(x - 3, y + 0.5); p.fill(); p.stroke(); return; }
  if (glyph === "snap") { p.rect(x - 4.5, y - 4.5, 9, 9); p.fill(); p.strokeStyle = colour.snapshot; p.stroke(); p.strokeRect(x - 1.8, y - 1.8, 3.6, 3.6); return; }
  if (glyph === "cutlog") { p.arc(x, y, 5, 0, 7); p.fill(); p.strokeStyle = colour.bad; p.stroke(); p.beginPath(); p.moveTo(x - 3, y + 3); p.lineTo(x + 3, y - 3); p.stroke(); return; }
  if (glyph === "bolt") { p.arc(x, y, 7, 0, 7); p.fillStyle = colour.bad; p.fill(); p.fillStyle = colour.paper; p.beginPath(); p.moveTo(x + 1.8, y - 5); p.lineTo(x - 3, y + 0.8); p.lineTo(x - 0.3, y + 0.8); p.lineTo(x - 1.6, y + 5); p.lineTo(x + 3, y - 1.2); p.lineTo(x + 0.4, y - 1.2); p.closePath(); p.fill(); return; }
  if (glyph === "warn") { p.moveTo(x, y - 6); p.lineTo(x + 6, y + 5); p.lineTo(x - 6, y + 5); p.closePath(); p.fill(); p.strokeStyle = colour.stall; p.stroke(); p.beginPath(); p.moveTo(x, y - 2); p.lineTo(x, y + 1.4); p.moveTo(x, y + 2.8); p.lineTo(x, y + 3.8); p.stroke(); return; }
  if (glyph.startsWith("shield")) {
    p.moveTo(x, y - 7); p.lineTo(x + 6, y - 4.5); p.lineTo(x + 5.2, y + 2); p.lineTo(x, y + 7); p.lineTo(x - 5.2, y + 2); p.lineTo(x - 6, y - 4.5); p.closePath();
    p.fillStyle = colour.focus; p.fill(); p.strokeStyle = colour.paper; p.stroke();
  }
}

const RESULTS = { committed: "ok", ready: "ok", confirmed: "ok", refused: "refused", unknown: "unknown", "gave up": "unknown", died: "unknown", open: "open" };
function drawClients() {
  if (!layout.clients) return;
  const top = layout.clientsY;
  pen.fillStyle = colour.line; pen.fillRect(layout.gutter, top, layout.width, 1);
  const from = lower(opReach, view.from, same), to = lower(ops, view.to, fromOf), rows = layout.rows;
  for (let n = from; n < to; n += 1) {
    const op = ops[n], end = op.to === null ? Math.min(last, view.to) : op.to;
    if (end < view.from || filter.clients.has(op.client) || filter.kinds.has("Clients/" + op.kind) || filter.nodes.has(op.node)) continue;
    const a = clampX(xOf(op.from)), b = clampX(xOf(end)), y = top + 6 + (clientRow.get(op.client) % rows) * ((layout.clients - 10) / rows);
    pen.globalAlpha = found && !found[op.item] && !(op.answer >= 0 && found[op.answer]) ? 0.2 : 1;
    pen.fillStyle = op.result === "unknown" || op.result === "gave up" || op.result === "died" ? stripes(colour.ground, colour.unknown, 5, false) : colour[RESULTS[op.result] || "open"];
    pen.fillRect(a, y, Math.max(1.5, b - a), 6);
    pen.fillStyle = colour.ink; pen.fillRect(a, y, 1, 6);
    if (op.item === view.selected || op.answer === view.selected) linkOp(op, a, b, y);
    picks.push({ rect: [a - 1, y - 1, Math.max(4, b - a + 2), 8], item: op.item, other: op.answer });
  }
  pen.globalAlpha = 1;
}
function linkOp(op, a, b, y) {
  if (!layout.y.has(op.node)) return;
  const lane = layout.y.get(op.node) + layout.band + layout.bandHeight;
  pen.strokeStyle = colour.accent; pen.lineWidth = 1.5; pen.setLineDash([3, 3]); pen.beginPath();
  pen.moveTo(a, y); pen.lineTo(a, lane); if (op.to !== null) { pen.moveTo(b, lane); pen.lineTo(b, y); }
  pen.stroke(); pen.setLineDash([]);
  pen.strokeRect(a - 1, y - 1, Math.max(4, b - a + 2), 8);
}

function drawStory() {
  if (!layout.story) return;
  const y = layout.storyY + 13, from = lower(stories, view.from, atOf), to = lower(stories, view.to + 1, atOf);
  let free = -9;
  for (let n = from; n < to; n += 1) {
    const item = stories[n], x = xOf(item.at);
    if (!shown(item)) continue;
    const next = stories.slice(n + 1, to).find(shown), room = (next ? xOf(next.at) : layout.width) - x - 20;
    pen.globalAlpha = dim(item) ? 0.3 : 1;
    if (item.cls === "guard") drawGlyph(pen, "shield", x, y);
    else { pen.fillStyle = colour.quiet; pen.beginPath(); pen.moveTo(x, y - 6); pen.lineTo(x + 5, y); pen.lineTo(x, y + 6); pen.closePath(); pen.fill(); }
    if (x > free) {
      const text = fitting(sentence(item), room, 11, 500);
      if (text) { words(text, x + 10, y, colour.ink, 11, 500); free = x + 14 + pen.measureText(text).width; }
    }
    pen.globalAlpha = 1;
    picks.push({ rect: [x - 7, y - 9, Math.max(14, Math.min(room, 120)), 18], item: item.i });
  }
}
function drawViolation() {
  if (!violation) return;
  const x = xOf(violation.at);
  if (x < layout.gutter - 4 || x > layout.width + 4) return;
  pen.strokeStyle = colour.bad; pen.lineWidth = 2; pen.beginPath(); pen.moveTo(x, AXIS); pen.lineTo(x, layout.height); pen.stroke();
}

// Its name stands in the axis, where it hides nothing.
function labelViolation() {
  if (!violation) return;
  const x = xOf(violation.at);
  if (x < layout.gutter - 4 || x > layout.width + 4) return;
  pen.font = font(12, 650);
  const text = violation.kind + " violated", w = pen.measureText(text).width + 14, left = Math.max(layout.gutter, Math.min(x - w / 2, layout.width - w));
  pen.fillStyle = colour.bad; pen.fillRect(left, 1, w, AXIS - 4);
  words(text, left + 7, AXIS / 2 - 1, colour.paper, 12, 650);
  picks.push({ rect: [left, 1, w, AXIS - 4], item: violation.i });
}

function drawSelected() {
  const item = items[view.selected];
  if (!item) return;
  const x = xOf(item.at), copy = item.cls === "sent" || item.cls === "arrived" || item.cls === "missed" ? messages.get(item.x[0]) : null;
  pen.strokeStyle = colour.accent; pen.fillStyle = colour.accent; pen.globalAlpha = 0.7; pen.lineWidth = 1; pen.setLineDash([2, 2]);
  pen.beginPath(); pen.moveTo(x, AXIS); pen.lineTo(x, layout.height); pen.stroke(); pen.setLineDash([]); pen.globalAlpha = 1;
  if (copy && layout.y.has(copy.from) && layout.y.has(copy.to)) {
    let [x1, y1, x2, y2] = ends(copy);
    const lost = copy.fate.startsWith("lost");
    if (lost) [x2, y2] = stub(x1, y1, x2, y2);
    pen.lineWidth = 3; pen.beginPath(); pen.moveTo(x1, y1); pen.lineTo(x2, y2); pen.stroke();
    if (lost) cross(x2, y2, 5); else head(x1, y1, x2, y2, 9);
  }
  if (item.node >= 0 && layout.y.has(item.node)) {
    pen.lineWidth = 2; pen.beginPath(); pen.arc(x, layout.y.get(item.node) + layout.mid, 9, 0, 7); pen.stroke();
  }
}

// The whole run in small, with the view in it.
function drawMap() {
  const w = mapCanvas.clientWidth, h = mapCanvas.clientHeight, ratio = window.devicePixelRatio || 1;
  if (!mapImage) {
    mapImage = document.createElement("canvas"); mapImage.width = Math.round(w * ratio); mapImage.height = Math.round(h * ratio);
    const p = mapImage.getContext("2d");
    p.scale(ratio, ratio); p.fillStyle = colour.paper; p.fillRect(0, 0, w, h);
    const row = (h - 16) / Math.max(1, layout.lanes.length), x = at => (at - first) / (last - first || 1) * w;
    layout.lanes.forEach((node, n) => {
      const list = runs[node], y = 4 + n * row;
      for (let k = 0; k < list.length; k += 1) {
        const state = list[k].state, next = list[k + 1];
        if (next && next.state.role === state.role && k > 0 && list[k - 1].state.role === state.role) continue;
        let end = k; while (end + 1 < list.length && list[end + 1].state.role === state.role) end += 1;
        const to = list[end + 1] ? list[end + 1].at : last;
        p.fillStyle = ({ leader: colour.leader, candidate: colour.candidate, "pre-candidate": colour.pre, follower: colour.follower, forming: colour.forming })[state.role] || colour.down;
        p.fillRect(x(list[k].at), y, Math.max(0.6, x(to) - x(list[k].at)), Math.max(2, row - 1.5));
        k = end;
      }
    });
    const counts = new Float64Array(Math.ceil(w) + 1);
    for (const item of items) counts[Math.floor(x(item.at))] += 1;
    const most = counts.reduce((a, b) => Math.max(a, b), 1);
    p.fillStyle = colour.append; p.globalAlpha = 0.7;
    for (let n = 0; n < counts.length; n += 1) if (counts[n]) { const tall = 1 + 8 * Math.sqrt(counts[n] / most); p.fillRect(n, h - 1 - tall, 1, tall); }
    p.globalAlpha = 1;
    for (const item of items) if (item.after === -2 && item.cls === "fault") { p.fillStyle = colour.bad; p.fillRect(x(item.at) - 0.5, 4 + layout.lanes.indexOf(item.node) * row, 1.5, Math.max(2, row - 1.5)); }
    if (violation) { p.fillStyle = colour.bad; p.fillRect(Math.min(w - 2, x(violation.at) - 1), 0, 2, h); }
  }
  mapPen.clearRect(0, 0, w, h);
  mapPen.drawImage(mapImage, 0, 0, w, h);
  const a = (view.from - first) / (last - first || 1) * w, b = (view.to - first) / (last - first || 1) * w;
  mapPen.fillStyle = colour.ground; mapPen.globalAlpha = 0.55;
  mapPen.fillRect(0, 0, Math.max(0, a), h); mapPen.fillRect(b, 0, w - b, h);
  mapPen.globalAlpha = 1; mapPen.strokeStyle = colour.focus; mapPen.lineWidth = 2;
  mapPen.strokeRect(Math.max(1, a), 1, Math.max(3, Math.min(w - 1, b) - Math.max(1, a)), h - 2);
}

// What is nearest to a place on the canvas.
function pick(x, y) {
  let best = -1, near = 8.5;
  for (const p of picks) {
    let d = Infinity;
    if (p.point) d = Math.hypot(p.point[0] - x, p.point[1] - y) - 3;
    else if (p.line) {
      const [x1, y1, x2, y2] = p.line, length = (x2 - x1) ** 2 + (y2 - y1) ** 2 || 1;
      const t = Math.max(0, Math.min(1, ((x - x1) * (x2 - x1) + (y - y1) * (y2 - y1)) / length));
      d = Math.hypot(x1 + t * (x2 - x1) - x, y1 + t * (y2 - y1) - y);
    } else {
      const [a, b, w, h] = p.rect;
      d = x >= a && x <= a + w && y >= b && y <= b + h ? (p.weak ? 6 : 2) : Infinity;
    }
    if (d < near) { near = d; best = p.item; }
  }
  return best;
}
