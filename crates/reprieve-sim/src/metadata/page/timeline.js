// The log, newest first, and a drawing with a lane for each event.

import { draw, keep, make, setText, set } from "./dom.js";
import { count, names, sentence, time } from "./words.js";

/** The most lanes, of the newest events. */
const LANES_MAX = 24;

/** The default time range covers this many events. */
const NEWEST = 6;

/** The drawing's layout, in CSS pixels. */
const AXIS = 26;
const LANE = 46;
const BAR = { top: 23, height: 14 };
const LABEL = { x: 8, y: 16 };

/** The share of the width for the future. */
const FUTURE = 0.25;

/** The widest average character, in CSS pixels. */
const CHARACTER = 7.5;

/** The seconds between two ticks: the first of these whose labels fit. */
const TICKS = [5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21_600, 86_400];
const TICK_PX_MIN = 84;

const by = (id) => document.getElementById(id);

/** Keeps both up to date. */
export function timeline() {
  const drawing = lanes(by("drawing").querySelector("svg"));
  const story = by("story");
  let written = "";
  return ({ state }, now) => {
    drawing(state.events, now, Number(by("span").value) * 1000 || spanOf(state.events, now));
    const text = JSON.stringify(state.timeline);
    if (text === written) return;
    written = text;
    story.replaceChildren(...state.timeline.toReversed().map(line));
  };
}

/** The shortest time, in milliseconds, in which the newest events were announced. */
function spanOf(events, now) {
  const ages = events.map(({ announced_at_unix_ms: announced }) => now - announced).sort((one, other) => one - other);
  const oldest = ages.slice(0, NEWEST).at(-1) ?? 0;
  const spans = [...by("span").options].map(({ value }) => Number(value) * 1000).filter((span) => span > 0);
  return spans.find((span) => span >= oldest) ?? spans.at(-1);
}

function line(entry) {
  const at = make("time", { datetime: new Date(entry.at_unix_ms).toISOString() }, time(entry.at_unix_ms));
  const text = make("span", {}, sentence(entry));
  const root = make("li", { class: entry.what }, at, text);
  // Enough of an id to tell events apart; the end, because ids of the same second begin alike.
  if (entry.event_id) root.append(make("code", { title: entry.event_id }, entry.event_id.slice(-6)));
  return root;
}

function lanes(svg) {
  const ticks = draw("g", { class: "ticks" });
  const rows = draw("g");
  const present = draw("line", { class: "now" });
  const label = draw("text", { class: "now" }, "now");
  const nothing = draw("text", { ...LABEL, y: AXIS + LABEL.y, class: "quiet" });
  svg.append(ticks, rows, nothing, present, label);
  return (events, now, past) => {
    const width = Math.max(280, svg.parentElement.clientWidth);
    const from = now - past;
    const perMs = (width * (1 - FUTURE)) / past;
    const scale = { now, from, width, perMs, x: (ms) => (ms - from) * perMs };
    const shown = events
      .filter((event) => (event.ends_at_unix_ms ?? Infinity) > from)
      .sort((one, other) => other.announced_at_unix_ms - one.announced_at_unix_ms)
      .slice(0, LANES_MAX);
    const height = AXIS + Math.max(1, shown.length) * LANE;
    const size = { width, height, viewBox: `0 0 ${width} ${height}` };
    const summary = shown.length === 0 ? "No events in this range" : `${count(shown.length, "event")}, listed below`;
    set(svg, { ...size, "aria-label": summary });
    drawTicks(ticks, scale, height);
    setText(nothing, shown.length === 0 ? summary : "");
    keep(rows, shown.map((event, row) => ({ event, row, scale })), {
      key: ({ event }) => event.event_id,
      view: () => lane(),
    });
    const x = scale.x(now);
    set(present, { x1: x, x2: x, y1: AXIS - 6, y2: height });
    set(label, { x, y: 15, "text-anchor": "middle" });
  };
}

function drawTicks(group, { from, width, perMs, x, now }, height) {
  const step = 1000 * (TICKS.find((seconds) => seconds * 1000 * perMs >= TICK_PX_MIN) ?? 604_800);
  const zone = new Date(now).getTimezoneOffset() * 60_000;
  const first = Math.ceil((from - zone) / step) * step + zone;
  const at = [];
  for (let ms = first; x(ms) < width; ms += step) at.push(ms);
  keep(group, at, {
    key: (ms) => `${step} ${ms}`,
    view: (ms) => {
      const mark = draw("line", { y1: AXIS - 6 });
      const day = new Date(ms).toLocaleDateString(undefined, { day: "numeric", month: "short" });
      const label = draw("text", { y: 15, "text-anchor": "middle" }, step < 86_400_000 ? time(ms).slice(0, step < 60_000 ? 8 : 5) : day);
      const update = () => {
        set(mark, { x1: x(ms), x2: x(ms), y2: height });
        // Labels that would be cut off, or overlap "now", are hidden.
        const readable = x(ms) > 32 && x(ms) < width - 32 && Math.abs(x(ms) - x(now)) > 52;
        set(label, { x: x(ms), display: readable ? null : "none" });
      };
      return { root: draw("g", {}, mark, label), update };
    },
  });
}

/** One event: its scheduled and started times, past and upcoming. */
function lane() {
  const title = draw("title");
  const label = draw("text", LABEL);
  const [scheduled, scheduledAhead, started, startedAhead] = ["scheduled", "scheduled ahead", "started", "started ahead"].map(
    (name) => draw("rect", { class: name, y: BAR.top, height: BAR.height, rx: 2 }),
  );
  const marks = draw("g");
  const rule = draw("line", { class: "rule", y1: LANE - 0.5, y2: LANE - 0.5, x1: 0 });
  const root = draw("g", {}, title, rule, scheduledAhead, startedAhead, scheduled, started, marks, label);
  const update = ({ event, row, scale }) => {
    set(root, { transform: `translate(0 ${AXIS + row * LANE})`, "data-event": event.event_id });
    set(rule, { x2: scale.width });
    const { announced_at_unix_ms: announced, starts_at_unix_ms: starts, ends_at_unix_ms: ends, status, vms } = event;
    const [begins, over] = [starts ?? ends ?? scale.now, starts === null ? null : (ends ?? null)];
    bar(scheduled, scale, announced, Math.min(begins, scale.now));
    bar(scheduledAhead, scale, Math.max(announced, scale.now), begins);
    bar(started, scale, starts ?? 0, over === null ? 0 : Math.min(over, scale.now));
    bar(startedAhead, scale, Math.max(starts ?? 0, scale.now), over ?? 0);
    keep(marks, marksOf(event).map((one) => ({ ...one, scale })), { key: ({ what }) => what, view: mark });
    const name = `${event.event_type} · ${names(vms, 2)}`;
    const room = Math.floor((scale.width - 2 * LABEL.x) / CHARACTER);
    setText(label, name.length > room ? `${name.slice(0, room - 1)}…` : name);
    setText(title, `${event.event_type} for ${names(vms)}: ${status}`);
  };
  return { root, update };
}

/** Draws the visible part of a bar between two times; a short bar keeps a minimum width. */
function bar(rect, { x, width }, from, to) {
  const [left, right] = [Math.max(0, x(from)), Math.min(width, x(to))];
  const visible = to > from && right > 0 && left < width;
  set(rect, { x: left, width: visible ? Math.max(3, right - left) : 0, visibility: visible ? null : "hidden" });
}

function marksOf({ approvals, status, ends_at_unix_ms: ends }) {
  const marks = approvals.map(({ vm, at_unix_ms: at }) => ({ what: `approved by ${vm}`, at, sign: "dot" }));
  if (status === "withdrawn") marks.push({ what: "withdrawn", at: ends, sign: "cross" });
  return marks;
}

function mark({ sign }) {
  const title = draw("title");
  const y = BAR.top + BAR.height / 2;
  const root = sign === "dot" ? draw("circle", { cy: y, r: 5.5, class: "dot" }, title) : draw("path", { class: "cross" }, title);
  const update = ({ what, at, scale }) => {
    const x = scale.x(at);
    setText(title, `${what} at ${time(at)}`);
    const where = sign === "dot" ? { cx: x } : { d: `M${x - 5} ${y - 5}l10 10m0 -10l-10 10` };
    set(root, { ...where, visibility: x < 0 ? "hidden" : null });
  };
  return { root, update };
}
