// The active events: each with its times, its approvals, and its buttons.

import { keep, make, setText, set, show } from "./dom.js";
import * as mock from "./mock.js";
import { command, names, span, time } from "./words.js";

const by = (id) => document.getElementById(id);

/** Keeps the events up to date. `perform` runs a button's action. */
export function events(perform) {
  setText(by("announce"), command("announce --type Freeze --vms @first"));
  return ({ state }, now) => {
    const listed = new Map(state.document.Events.map((event) => [event.EventId, event]));
    const active = state.events.filter(({ status }) => status === "scheduled" || status === "started");
    keep(by("events"), active.map((event) => ({ event, now, listed: listed.get(event.event_id) })), {
      key: ({ event }) => event.event_id,
      view: ({ event }) => card(event.event_id, perform),
      refuge: by("events-title"),
    });
    show(by("events-hint"), active.length === 0);
  };
}

/** Advice is the only scheduled event without a start time. */
const isAdvice = (event) => event.status === "scheduled" && event.starts_at_unix_ms === null;

function card(id, perform) {
  const title = make("span");
  const pill = make("span", { class: "pill" });
  const when = make("p", { class: "when" });
  const description = make("p", { class: "description" });
  const facts = make("dl");
  const button = (text, action) => {
    const made = make("button", { type: "button" }, text);
    made.addEventListener("click", () => perform(made, () => action(id)));
    return made;
  };
  const start = button("Start now", mock.start);
  const withdraw = button("Withdraw", mock.withdraw);
  const complete = button("End now", mock.complete);
  const heading = make("h3", {}, title, " ", pill);
  const buttons = make("p", { class: "buttons" }, start, withdraw, complete);
  const root = make("li", { tabindex: "-1" }, heading, when, description, facts, buttons);
  root.dataset.event = id;
  const update = ({ event, listed, now }) => {
    root.className = event.status;
    setText(title, event.event_type);
    setText(pill, isAdvice(event) ? "Advice" : event.status === "started" ? "Started" : "Scheduled");
    setText(when, timeLeft(event, now));
    setText(description, event.description);
    show(description, event.description !== "");
    tabulate(facts, factsOf(event, listed));
    show(start, event.status === "scheduled" && !isAdvice(event), root);
    show(withdraw, event.status === "scheduled", root);
    show(complete, event.status === "started", root);
    for (const one of [start, withdraw, complete]) {
      set(one, { "aria-label": `${one.textContent}: ${event.event_type} for ${names(event.vms)}` });
    }
  };
  return { root, update };
}

function timeLeft(event, now) {
  const { status, starts_at_unix_ms: starts, ends_at_unix_ms: ends } = event;
  if (status === "started") return `started ${span(now - starts)} ago, ends in ${span(ends - now)}`;
  if (isAdvice(event)) return `advice, listed for another ${span(ends - now)}`;
  return `starts in ${span(starts - now)}`;
}

function factsOf(event, listed) {
  const seconds = listed?.DurationInSeconds ?? -1;
  const facts = { VMs: names(event.vms, 12), Source: event.source };
  if (event.status === "scheduled" && listed) facts.NotBefore = listed.NotBefore;
  facts.Interruption = seconds < 0 ? "unknown duration" : seconds === 0 ? "none" : span(seconds * 1000);
  const approvals = event.approvals.map(({ vm, at_unix_ms: at }) => `${vm} at ${time(at)}`);
  facts.Approval = approvals.length === 0 ? "Not approved" : `by ${approvals.join(", ")}`;
  facts.EventId = event.event_id;
  return facts;
}

/** Shows these facts in a definition list. */
function tabulate(list, facts) {
  keep(list, Object.entries(facts), {
    key: ([name]) => name,
    view: ([name]) => {
      const value = make("dd");
      return { root: make("div", {}, make("dt", {}, name), value), update: ([, text]) => setText(value, text) };
    },
  });
}
