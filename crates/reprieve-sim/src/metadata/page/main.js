// Asks the mock about once a second while somebody looks, and keeps everything on the page up to date.

import { say } from "./dom.js";
import { events } from "./events.js";
import { faults } from "./faults.js";
import * as mock from "./mock.js";
import { scenarios } from "./scenarios.js";
import { timeline } from "./timeline.js";
import { vms } from "./vms.js";
import { count, sentence, time } from "./words.js";

const POLL_MS = 1000;

/** Times count down in steps of this, also between two answers. */
const TICK_MS = 500;

/** Of so many new lines of the timeline people are told; more would not be listened to. */
const NEWS_MAX = 3;

const by = (id) => document.getElementById(id);

/** The newest answer, and when it came. */
let seen = null;
let asked = 0;
const busy = new WeakSet();
const sections = [vms, events, timeline, scenarios, faults].map((section) => section(tell));

function render() {
  if (seen === null) return;
  const now = Date.now() + seen.answer.ahead;
  for (const section of sections) section(seen.answer, now);
  const { document: told, vms, speed } = seen.answer.state;
  const pace = speed === 1 ? "as fast as life" : `${speed} times as fast as life`;
  say(by("summary"), `${count(vms.length, "VM")}, incarnation ${told.DocumentIncarnation}, ${pace}`);
  document.title = `${told.Events.length > 0 ? `(${told.Events.length}) ` : ""}Mock metadata service`;
}

async function poll() {
  const number = ++asked;
  try {
    const answer = await mock.look();
    // An older answer than the one that is shown.
    if (seen !== null && number < seen.number) return;
    const before = seen?.answer.state.timeline;
    seen = { number, answer, at: Date.now() };
    render();
    report(before, answer.state.timeline);
    say(by("alert"), "");
  } catch (error) {
    if (number === asked) say(by("alert"), trouble(error));
  }
  document.body.classList.toggle("away", by("alert").textContent !== "");
}

function trouble(error) {
  const shown = seen === null ? "" : ` Below is what was so at ${time(seen.at)}.`;
  if (!(error instanceof mock.Away)) return `Something is wrong: ${error.message}.${shown}`;
  return `No answer: ${error.message}. It is asked again every second; is "reprieve metadata serve" running?${shown}`;
}

/** Says what is new since the last answer. */
function report(before, lines) {
  if (before === undefined) return;
  const last = JSON.stringify(before.at(-1));
  const known = lines.findLastIndex((line) => JSON.stringify(line) === last);
  // A mock that was started anew has nothing of what was known.
  const fresh = before.length === 0 ? lines : known < 0 ? [] : lines.slice(known + 1);
  if (fresh.length === 0) return;
  const said = fresh.slice(-NEWS_MAX).map((line) => `${time(line.at_unix_ms)} ${sentence(line)}.`);
  say(by("status"), said.join(" "));
}

/** Does what a button is for, once at a time, says why if it can't be done, and looks at what has become of it. */
async function tell(button, does) {
  if (busy.has(button)) return;
  busy.add(button);
  say(by("refusal"), "");
  try {
    await does();
  } catch (error) {
    say(by("refusal"), `Not done: ${error.message}.`);
  } finally {
    busy.delete(button);
  }
  await poll();
}

/** While nobody looks nothing is asked. */
function looked() {
  if (!document.hidden) return Promise.resolve();
  return new Promise((resolve) => document.addEventListener("visibilitychange", resolve, { once: true })).then(looked);
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

for (const id of ["find", "span"]) by(id).addEventListener("input", render);
setInterval(() => {
  if (!document.hidden && !document.body.classList.contains("away")) render();
}, TICK_MS);
addEventListener("resize", render);
for (;;) {
  await looked();
  await poll();
  await pause(POLL_MS);
}
