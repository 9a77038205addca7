// Polls the mock once a second while the page is visible, and updates every section.

import { setText } from "./dom.js";
import { events } from "./events.js";
import { faults } from "./faults.js";
import * as mock from "./mock.js";
import { scenarios } from "./scenarios.js";
import { timeline } from "./timeline.js";
import { vms } from "./vms.js";
import { count, sentence, time } from "./words.js";

const POLL_MS = 1000;

/** How often countdowns are redrawn between two answers. */
const TICK_MS = 500;

/** The most new log entries that are announced; nobody listens to more. */
const NEWS_MAX = 3;

const by = (id) => document.getElementById(id);

/** The newest answer, and its time of arrival. */
let seen = null;
let asked = 0;
const busy = new WeakSet();
const sections = [vms, events, timeline, scenarios, faults].map((section) => section(perform));

function render() {
  if (seen === null) return;
  const now = Date.now() + seen.answer.ahead;
  for (const section of sections) section(seen.answer, now);
  const { document: shown, vms, speed } = seen.answer.state;
  const pace = speed === 1 ? "real time" : `${speed}× real time`;
  setText(by("summary"), `${count(vms.length, "VM")}, incarnation ${shown.DocumentIncarnation}, ${pace}`);
  document.title = `${shown.Events.length > 0 ? `(${shown.Events.length}) ` : ""}Mock metadata service`;
}

async function poll() {
  const number = ++asked;
  try {
    const answer = await mock.read();
    // A newer answer is shown already.
    if (seen !== null && number < seen.number) return;
    const before = seen?.answer.state.timeline;
    seen = { number, answer, at: Date.now() };
    render();
    report(before, answer.state.timeline);
    setText(by("alert"), "");
  } catch (error) {
    if (number === asked) setText(by("alert"), failure(error));
  }
  document.body.classList.toggle("away", by("alert").textContent !== "");
}

function failure(error) {
  const shown = seen === null ? "" : ` The page shows the state at ${time(seen.at)}.`;
  if (!(error instanceof mock.Away)) return `Error: ${error.message}.${shown}`;
  return `No answer: ${error.message}. Retrying every second; is "reprieve metadata serve" running?${shown}`;
}

/** Announces the log entries that are new since the last answer. */
function report(before, lines) {
  if (before === undefined) return;
  const last = JSON.stringify(before.at(-1));
  const known = lines.findLastIndex((line) => JSON.stringify(line) === last);
  // After a restart of the mock, none of the known entries are in its log.
  const fresh = before.length === 0 ? lines : known < 0 ? [] : lines.slice(known + 1);
  if (fresh.length === 0) return;
  const said = fresh.slice(-NEWS_MAX).map((line) => `${time(line.at_unix_ms)} ${sentence(line)}.`);
  setText(by("status"), said.join(" "));
}

/** Performs a button's action, once at a time, shows why it failed, and polls for the result. */
async function perform(button, action) {
  if (busy.has(button)) return;
  busy.add(button);
  setText(by("refusal"), "");
  try {
    await action();
  } catch (error) {
    setText(by("refusal"), `Failed: ${error.message}.`);
  } finally {
    busy.delete(button);
  }
  await poll();
}

/** Resolves when the page is visible: a hidden page does not poll. */
function visible() {
  if (!document.hidden) return Promise.resolve();
  return new Promise((resolve) => document.addEventListener("visibilitychange", resolve, { once: true })).then(visible);
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

for (const id of ["find", "span"]) by(id).addEventListener("input", render);
setInterval(() => {
  if (!document.hidden && !document.body.classList.contains("away")) render();
}, TICK_MS);
addEventListener("resize", render);
for (;;) {
  await visible();
  await poll();
  await pause(POLL_MS);
}
