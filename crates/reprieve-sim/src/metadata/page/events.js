// The events that stand: what each is, how long it has, who has approved it, and what can be done with it.

import { keep, make, say, set, show } from "./dom.js";
import * as mock from "./mock.js";
import { command, names, span, time } from "./words.js";

const by = (id) => document.getElementById(id);

/** Keeps the events up to date. `tell` runs what a button does. */
export function events(tell) {
  say(by("announce"), command("announce --type Freeze --vms @first"));
  return ({ state }, now) => {
    const told = new Map(state.document.Events.map((event) => [event.EventId, event]));
    const standing = state.events.filter(({ status }) => status === "scheduled" || status === "started");
    keep(by("events"), standing.map((event) => ({ event, now, told: told.get(event.event_id) })), {
      key: ({ event }) => event.event_id,
      view: ({ event }) => card(event.event_id, tell),
      refuge: by("events-title"),
    });
    show(by("events-hint"), standing.length === 0);
  };
}

/** Advice never begins. It is known by that. */
const isAdvice = (event) => event.status === "scheduled" && event.starts_at_unix_ms === null;

function card(id, tell) {
  const title = make("span");
  const pill = make("span", { class: "pill" });
  const when = make("p", { class: "when" });
  const description = make("p", { class: "description" });
  const facts = make("dl");
  const button = (text, does) => {
    const made = make("button", { type: "button" }, text);
    made.addEventListener("click", () => tell(made, () => does(id)));
    return made;
  };
  const start = button("Start now", mock.start);
  const withdraw = button("Withdraw", mock.withdraw);
  const complete = button("End now", mock.complete);
  const heading = make("h3", {}, title, " ", pill);
  const buttons = make("p", { class: "buttons" }, start, withdraw, complete);
  const root = make("li", { tabindex: "-1" }, heading, when, description, facts, buttons);
  root.dataset.event = id;
  const update = ({ event, told, now }) => {
    root.className = event.status;
    say(title, event.event_type);
    say(pill, isAdvice(event) ? "Advice" : event.status === "started" ? "Started" : "Scheduled");
    say(when, timeLeft(event, now));
    say(description, event.description);
    show(description, event.description !== "");
    tabulate(facts, factsOf(event, told));
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
  if (status === "started") return `has begun ${span(now - starts)} ago, over in ${span(ends - now)}`;
  if (isAdvice(event)) return `an advice, told for another ${span(ends - now)}`;
  return `begins in ${span(starts - now)}`;
}

function factsOf(event, told) {
  const seconds = told?.DurationInSeconds ?? -1;
  const facts = { VMs: names(event.vms, 12), Source: event.source };
  if (event.status === "scheduled" && told) facts.NotBefore = told.NotBefore;
  facts.Interrupts = seconds < 0 ? "for an unknown time" : seconds === 0 ? "not at all" : `for ${span(seconds * 1000)}`;
  const approvals = event.approvals.map(({ vm, at_unix_ms: at }) => `${vm} at ${time(at)}`);
  facts.Approved = approvals.length === 0 ? "by nobody" : `by ${approvals.join(", ")}`;
  facts.EventId = event.event_id;
  return facts;
}

/** Lets a list of definitions say these facts. */
function tabulate(list, facts) {
  keep(list, Object.entries(facts), {
    key: ([name]) => name,
    view: ([name]) => {
      const value = make("dd");
      return { root: make("div", {}, make("dt", {}, name), value), update: ([, text]) => say(value, text) };
    },
  });
}
