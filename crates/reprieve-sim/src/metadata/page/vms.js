// The set: who is in it, whether a worker asks there, and what is about to happen to it.

import { keep, make, say, set, show } from "./dom.js";
import * as mock from "./mock.js";
import { command, count, span } from "./words.js";

/** So many VMs are shown; of more, those that are looked for. */
const SHOWN_MAX = 60;

/** From this many on there is something to look for. */
const FIND_FROM = 13;

/** Workers ask every second. Who has not for this many milliseconds does not any more. */
const ASKS_MS = 5000;

const by = (id) => document.getElementById(id);

/** Keeps the set up to date. `tell` runs what a button does. */
export function vms(tell) {
  const find = by("find");
  const hint = setHint();
  const evict = (vm, button) => tell(button, () => mock.evict(vm, by("notice").value));
  return ({ state }, now) => {
    const wanted = find.value.trim().toLowerCase();
    const found = state.vms.filter((vm) => vm.name.toLowerCase().includes(wanted));
    const items = found.slice(0, SHOWN_MAX).map((vm) => ({ vm, now, events: standing(state, vm) }));
    keep(by("vms"), items, {
      key: ({ vm }) => vm.vm_id,
      view: ({ vm }) => card(vm, evict),
      refuge: by("set-title"),
    });
    show(by("find-field"), state.vms.length >= FIND_FROM || wanted !== "");
    const hidden = found.length - items.length;
    show(by("vms-more"), hidden > 0 || found.length < state.vms.length);
    say(by("vms-more"), `${count(items.length, "VM")} of ${state.vms.length}${hidden > 0 ? "; look for one by its name" : ""}`);
    hint(state.vms);
  };
}

/** The events that name the VM and are not over. */
function standing(state, vm) {
  const name = vm.name.toLowerCase();
  const stands = ({ status }) => status === "scheduled" || status === "started";
  return state.events.filter((event) => stands(event) && event.vms.some((other) => other.toLowerCase() === name));
}

function card(vm, evict) {
  const asks = make("p", { class: "asks" });
  const fate = make("p", { class: "fate" });
  const url = make("code", {}, vm.url);
  const copy = make("button", { type: "button", "aria-label": `Copy URL of ${vm.name}` }, "Copy URL");
  copy.addEventListener("click", () => copied(copy, url, vm.name));
  const button = make("button", { type: "button", class: "grave", "aria-label": `Evict ${vm.name}` }, "Evict");
  button.addEventListener("click", () => evict(vm.name, button));
  const root = make("li", {}, make("h3", {}, vm.name), asks, url, make("p", { class: "buttons" }, copy, button), fate);
  root.dataset.vm = vm.name;
  const update = ({ vm: { polls, last_poll_unix_ms: last }, events, now }) => {
    const ago = last === null ? Infinity : now - last;
    root.classList.toggle("asked", ago <= ASKS_MS);
    say(asks, asked(polls, ago));
    say(fate, events.map((event) => fateOf(event, now)).join(", "));
  };
  return { root, update };
}

function asked(polls, ago) {
  if (ago === Infinity) return "nobody asks";
  if (ago <= ASKS_MS) return `a worker asks; ${count(polls, "poll")}, the last ${span(ago)} ago`;
  return `nobody asks any more; ${count(polls, "poll")}, the last ${span(ago)} ago`;
}

function fateOf({ event_type: type, status, starts_at_unix_ms: starts }, now) {
  if (status === "started") return `${type} now`;
  return starts === null ? `${type} advised` : `${type} in ${span(starts - now)}`;
}

/** Copies, or where the browser does not let pages copy selects what is to be copied. */
async function copied(button, url, name) {
  const tell = (text) => {
    say(button, text);
    set(button, { "aria-label": `${text} of ${name}` });
  };
  try {
    await navigator.clipboard.writeText(url.textContent);
    tell("Copied URL");
  } catch {
    getSelection().selectAllChildren(url);
    tell("Selected URL");
  }
  setTimeout(() => tell("Copy URL"), 2000);
}

/** What to do when there is nobody. */
function setHint() {
  const root = by("set-hint");
  const words = make("span");
  const line = make("code");
  root.append(words, line);
  return (vms) => {
    const asked = vms.some((vm) => vm.last_poll_unix_ms !== null);
    show(root, !asked);
    if (vms.length === 0) {
      say(words, "There are no VMs. Add one: ");
      say(line, command("vm add spot-0"));
    } else if (!asked) {
      say(words, "No worker asks yet. Start yours on one of these VMs: ");
      say(line, `YOUR-WORKER --metadata-url ${vms[0].url}`);
    }
  };
}
