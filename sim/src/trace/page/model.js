"use strict";
// The recording, indexed for drawing. Times are microseconds; nodes and items are numbers.

const CLASSES = ["story", "guard", "sent", "arrived", "missed", "inside", "timer", "began", "ended", "life", "fault",
  "relief", "cut", "uncut", "called", "answered", "gaveup", "read", "violated"];
const FATES = ["", "held back", "duplicate", "lost", "lost: cut", "lost: no connection"];
const ROLES = ["follower", "pre-candidate", "candidate", "leader"];
// Which messages are drawn alike; everything unknown is drawn as a forward.
const FAMILY = { Append: "append", Heartbeat: "reply", AppendReply: "reply", ForwardReply: "forward", Vote: "vote",
  VoteReply: "vote", PreVote: "vote", PreVoteReply: "vote", TimeoutNow: "vote", SnapshotOffer: "snapshot",
  SnapshotChunk: "snapshot", SnapshotAck: "snapshot" };

const raw = JSON.parse(document.getElementById("data").textContent);
const nodes = raw.nodes;
const items = raw.items.map(([at, node, cls, kind, text, after, ...x], i) =>
  ({ i, at, node, cls: CLASSES[cls], kind: raw.words[kind], text, after, x, prev: -1, cause: -1 }));
const first = items.length ? items[0].at : 0;
const last = items.length ? items[items.length - 1].at : 1;

// How a node stands: -1 unknown, -2 down, -3 forming, else a row of the table of states.
function standing(after) {
  if (after === -2) return { up: false, role: "down" };
  if (after === -3) return { up: false, role: "forming" };
  if (after < 0) return null;
  const [role, term, commit, applied, durableTerm, durable, lastTerm, end] = raw.states[after];
  return { up: true, role: ROLES[role], term, commit, applied, durableTerm, durable, lastTerm, last: end };
}

const messages = new Map();   // copy -> message
const runs = nodes.map(() => []);  // changes of standing: {at, state}
const spans = [];             // faults that last: {node, kind, from, to, text, item}
const jobs = [];              // {node, lane, kind, from, to, item}
const ops = [];               // calls: {client, ticket, node, from, to, result, item, answer}
const cuts = [];              // {a, b, both, from, to, item}
const points = [];            // items drawn as a glyph on a lane
const stories = [];           // items of the story lane
let violation = null;

function index() {
  const lastOf = nodes.map(() => -1), lastState = nodes.map(() => null), input = nodes.map(() => -1);
  const openSpans = new Map(), openJobs = new Map(), openOps = new Map(), openCuts = new Map();
  const endSpan = (node, kind, at) => {
    for (const [key, span] of openSpans) {
      if ((node < 0 || span.node === node) && (kind === null || span.kind === kind)) { span.to = Math.min(span.to, at); openSpans.delete(key); }
    }
  };
  const handlers = {
    story: item => stories.push(item),
    guard: item => { stories.push(item); if (item.node >= 0) points.push(item); },
    sent: item => {
      const [copy, to, fate] = item.x;
      messages.set(copy, { copy, from: item.node, to, kind: item.kind, text: item.text, fate: FATES[fate],
        family: FAMILY[item.kind] || "forward", at: item.at, end: null, item: item.i, arrived: -1, missed: false });
    },
    arrived: item => arrive(item, false),
    missed: item => arrive(item, true),
    inside: item => { if (item.kind !== "durable" && item.kind !== "commit" && item.kind !== "applied") points.push(item); },
    began: item => {
      const job = { node: item.node, lane: raw.words[item.x[0]], kind: item.kind, from: item.at, to: null, item: item.i };
      jobs.push(job); openJobs.set(item.node + "/" + job.lane, job);
    },
    ended: item => {
      const key = item.node + "/" + raw.words[item.x[0]], job = openJobs.get(key);
      if (job) { job.to = item.at; openJobs.delete(key); item.began = job.item; }
    },
    life: item => points.push(item),
    fault: item => {
      if (item.node >= 0) points.push(item);
      const until = item.x[0];
      if (item.node >= 0 && (until > 0 || item.kind === "pause" || item.kind === "stuck")) {
        const span = { node: item.node, kind: item.kind, from: item.at, to: until > 0 ? until : Infinity, text: item.text, item: item.i };
        spans.push(span); openSpans.set(item.i, span);
      }
      if (item.after === -2) {
        endSpan(item.node, "pause", item.at); endSpan(item.node, "stuck", item.at);
        for (const [key, job] of openJobs) if (job.node === item.node) { job.to = item.at; job.killed = true; openJobs.delete(key); }
        for (const [key, op] of openOps) if (op.node === item.node) { op.to = item.at; op.result = "died"; op.answer = item.i; openOps.delete(key); }
      }
    },
    relief: item => { if (item.kind === "all") { endSpan(-1, null, item.at); stories.push(item); } else { endSpan(item.node, item.kind, item.at); points.push(item); } },
    cut: item => {
      for (let n = 0; n < item.x.length; n += 2) {
        const key = item.x[n] + ">" + item.x[n + 1], open = openCuts.get(key);
        if (open) { open.count += 1; continue; }
        const cut = { a: item.x[n], b: item.x[n + 1], from: item.at, to: Infinity, item: item.i, count: 1 };
        cuts.push(cut); openCuts.set(key, cut);
      }
    },
    uncut: item => {
      for (let n = 0; n < item.x.length; n += 2) {
        const key = item.x[n] + ">" + item.x[n + 1], open = openCuts.get(key);
        if (open && --open.count === 0) { open.to = item.at; openCuts.delete(key); }
      }
    },
    called: item => {
      const op = { client: item.x[0], ticket: item.x[1], node: item.node, from: item.at, to: null, result: "open", item: item.i, answer: -1, kind: item.kind };
      ops.push(op); openOps.set(op.ticket, op);
    },
    answered: item => endOp(item, item.x[0], item.kind),
    gaveup: item => endOp(item, item.x[1], "gave up"),
    read: item => points.push(item),
    violated: item => { violation = item; },
  };
  function arrive(item, missed) {
    const message = messages.get(item.x[0]);
    if (!message) return;
    message.end = item.at; message.arrived = item.i; message.missed = missed;
    item.text = message.text;
  }
  function endOp(item, ticket, result) {
    const op = openOps.get(ticket);
    if (!op) return;
    op.to = item.at; op.result = result; op.answer = item.i; item.call = op.item; openOps.delete(ticket);
  }
  const opens = { arrived: 1, timer: 1, ended: 1, called: 1 };
  for (const item of items) {
    const node = item.node;
    if (node >= 0) {
      item.prev = lastOf[node]; lastOf[node] = item.i;
      if (opens[item.cls]) input[node] = item.i;
      else if (item.cls === "fault" || item.cls === "life") input[node] = -1;
      else if (input[node] >= 0 && items[input[node]].at === item.at) item.cause = input[node];
      const state = standing(item.after);
      if (state && item.after !== lastState[node]) { runs[node].push({ at: item.at, state, item: item.i }); lastState[node] = item.after; }
    }
    const handler = handlers[item.cls];
    if (handler) handler(item);
  }
}
index();
for (const op of ops) if (op.client < 0) op.client = null;

const sent = [...messages.values()];
const latencies = sent.filter(m => m.end !== null).map(m => m.end - m.at).sort((a, b) => a - b);
const typical = latencies.length ? latencies[latencies.length >> 1] : 200;
for (const m of sent) m.until = m.end !== null ? m.end : m.at + typical;

// The largest end among all up to each position: finds what began before a view and reaches into it.
function reach(list, end) {
  let high = 0;
  return list.map(entry => (high = Math.max(high, end(entry))));
}
const sentReach = reach(sent, m => m.until);
const jobReach = reach(jobs, j => j.to === null ? Infinity : j.to);
const opReach = reach(ops, o => o.to === null ? Infinity : o.to);

// First position whose value is at least `value`.
function lower(list, value, get) {
  let low = 0, high = list.length;
  while (low < high) { const mid = (low + high) >> 1; if (get(list[mid]) < value) low = mid + 1; else high = mid; }
  return low;
}
const atOf = entry => entry.at, fromOf = entry => entry.from, same = value => value;
const itemIndexAt = time => lower(items, time, atOf);

const clientList = [...new Set(ops.map(op => op.client))].sort((a, b) => (a === null) - (b === null) || a - b);
const clientRow = new Map(clientList.map((client, row) => [client, row]));
const clientName = client => client === null ? "director" : "client " + client;

// What is hidden, and what is searched for.
const filter = { nodes: new Set(), kinds: new Set(), clients: new Set(), words: "" };
const GROUPS = { story: "Story", guard: "Guard", sent: "Messages", arrived: "Messages", missed: "Messages", inside: "Inside", timer: "Inside",
  began: "Jobs", ended: "Jobs", life: "Processes", fault: "Faults", relief: "Faults", cut: "Faults", uncut: "Faults", called: "Clients",
  answered: "Clients", gaveup: "Clients", read: "Clients", violated: "Story" };
const kindKey = item => GROUPS[item.cls] + "/" + kindName(item);
function kindName(item) {
  if (item.cls === "answered" || item.cls === "called") return item.cls === "called" ? item.kind : "answers";
  return item.kind;
}

function shown(item) {
  if (item.cls === "violated") return true;
  if (item.node >= 0 && filter.nodes.has(item.node)) return false;
  if (filter.kinds.has(kindKey(item))) return false;
  if (filter.clients.size) {
    const client = clientOf(item);
    if (client !== undefined && filter.clients.has(client)) return false;
  }
  return true;
}
function clientOf(item) {
  if (item.cls === "called") return item.x[0] < 0 ? null : item.x[0];
  if (item.cls === "gaveup") return item.x[0];
  if (item.cls === "answered" && item.call !== undefined) return clientOf(items[item.call]);
  return undefined;
}
const nodeName = node => nodes[node] === undefined ? "?" : nodes[node];
function sentence(item) {
  switch (item.cls) {
    case "sent": { const m = messages.get(item.x[0]); return (m.fate.startsWith("lost") ? "-x " : "-> ") + nodeName(item.x[1]) + " " + item.kind + " " + item.text + (m.fate ? " [" + m.fate + "]" : ""); }
    case "arrived": return "<- " + nodeName(item.x[1]) + " " + item.kind + " " + item.text;
    case "missed": return "x- " + nodeName(item.x[1]) + " " + item.kind + ": its process is gone";
    case "timer": return "timer";
    case "began": return "job " + item.kind + " begins";
    case "ended": return "job " + item.kind + " ends";
    case "fault": return item.kind + ": " + item.text;
    case "relief": return item.kind === "all" ? item.text : item.kind + " over: " + item.text;
    case "cut": return "cut: " + linkText(item.x);
    case "uncut": return "mended: " + linkText(item.x);
    case "called": return (item.x[0] < 0 ? "director" : "client " + item.x[0]) + " calls c" + item.x[1] + " " + item.kind + ": " + item.text;
    case "answered": return "answers c" + item.x[0] + " " + item.text;
    case "gaveup": return "client " + item.x[0] + " gives c" + item.x[1] + " up";
    case "read": return "read " + item.text;
    case "guard": return "guard " + item.kind + ": " + item.text;
    case "violated": return item.kind + " violated: " + item.text;
    default: return item.text;
  }
}
function linkText(x) {
  const words = [], has = (a, b) => { for (let n = 0; n < x.length; n += 2) if (x[n] === a && x[n + 1] === b) return true; return false; };
  for (let n = 0; n < x.length; n += 2) {
    const a = x[n], b = x[n + 1];
    if (!has(b, a)) words.push(nodeName(a) + " -> " + nodeName(b)); else if (a < b) words.push(nodeName(a) + " - " + nodeName(b));
  }
  return words.join(", ");
}
const haystack = item => ((item.node >= 0 ? nodeName(item.node) + " " : "") + sentence(item) + " " + item.kind + " " + item.cls).toLowerCase();
let found = null; // Uint8Array of matching items, or null if nothing is searched for
let foundCount = 0;
function search(words) {
  filter.words = words.trim().toLowerCase();
  found = null; foundCount = 0;
  if (!filter.words) return;
  const parts = filter.words.split(/\s+/);
  found = new Uint8Array(items.length);
  for (const item of items) {
    if (!shown(item)) continue;
    const text = haystack(item);
    if (parts.every(part => text.includes(part))) { found[item.i] = 1; foundCount += 1; }
  }
}
const wanted = item => shown(item) && (!found || found[item.i]);
function step(from, direction, only) {
  for (let i = from + direction; i >= 0 && i < items.length; i += direction) {
    if (wanted(items[i]) && (only === undefined || items[i].node === only)) return i;
  }
  return -1;
}
function seconds(at, digits) { return (at / 1e6).toFixed(digits === undefined ? 6 : digits); }
function span(micros) {
  if (micros < 1000) return Math.round(micros) + " us";
  if (micros < 1e6) return +(micros / 1000).toPrecision(4) + " ms";
  return +(micros / 1e6).toPrecision(4) + " s";
}
