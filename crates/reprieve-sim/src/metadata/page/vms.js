// The VMs: their polls, their active events, and their buttons.

import { keep, make, setText, set, show } from "./dom.js";
import * as mock from "./mock.js";
import { command, count, span } from "./words.js";

/** The most VMs shown at once; the others are found by search. */
const SHOWN_MAX = 60;

/** From this many VMs on there is a search field. */
const FIND_FROM = 13;

/** Workers poll every second. After this many milliseconds without a poll, a VM counts as no longer polling. */
const POLLING_MS = 5000;

const by = (id) => document.getElementById(id);

/** Keeps the VMs up to date. `perform` runs a button's action. */
export function vms(perform) {
  const find = by("find");
  const hint = setHint();
  const evict = (vm, button) => perform(button, () => mock.evict(vm, by("notice").value));
  return ({ state }, now) => {
    const wanted = find.value.trim().toLowerCase();
    const found = state.vms.filter((vm) => vm.name.toLowerCase().includes(wanted));
    const items = found.slice(0, SHOWN_MAX).map((vm) => ({ vm, now, events: activeEvents(state, vm) }));
    keep(by("vms"), items, {
      key: ({ vm }) => vm.vm_id,
      view: ({ vm }) => card(vm, evict),
      refuge: by("set-title"),
    });
    show(by("find-field"), state.vms.length >= FIND_FROM || wanted !== "");
    const hidden = found.length - items.length;
    show(by("vms-more"), hidden > 0 || found.length < state.vms.length);
    setText(by("vms-more"), `${count(items.length, "VM")} of ${state.vms.length}${hidden > 0 ? "; search by name" : ""}`);
    hint(state.vms);
  };
}

/** The active events of the VM. */
function activeEvents(state, vm) {
  const name = vm.name.toLowerCase();
  const isActive = ({ status }) => status === "scheduled" || status === "started";
  return state.events.filter((event) => isActive(event) && event.vms.some((other) => other.toLowerCase() === name));
}

function card(vm, evict) {
  const polling = make("p", { class: "polls" });
  const upcoming = make("p", { class: "upcoming" });
  const url = make("code", {}, vm.url);
  const copy = make("button", { type: "button", "aria-label": `Copy URL of ${vm.name}` }, "Copy URL");
  copy.addEventListener("click", () => copied(copy, url, vm.name));
  const button = make("button", { type: "button", class: "grave", "aria-label": `Evict ${vm.name}` }, "Evict");
  button.addEventListener("click", () => evict(vm.name, button));
  const root = make("li", {}, make("h3", {}, vm.name), polling, url, make("p", { class: "buttons" }, copy, button), upcoming);
  root.dataset.vm = vm.name;
  const update = ({ vm: { polls, last_poll_unix_ms: last }, events, now }) => {
    const ago = last === null ? Infinity : now - last;
    root.classList.toggle("polling", ago <= POLLING_MS);
    setText(polling, pollsOf(polls, ago));
    setText(upcoming, events.map((event) => eventText(event, now)).join(", "));
  };
  return { root, update };
}

function pollsOf(polls, ago) {
  if (ago === Infinity) return "no polls yet";
  if (ago <= POLLING_MS) return `polling: ${count(polls, "poll")}, last ${span(ago)} ago`;
  return `no longer polling: ${count(polls, "poll")}, last ${span(ago)} ago`;
}

function eventText({ event_type: type, status, starts_at_unix_ms: starts }, now) {
  if (status === "started") return `${type} now`;
  return starts === null ? `${type} advised` : `${type} in ${span(starts - now)}`;
}

/** Copies the URL, or selects it where the browser does not let pages copy. */
async function copied(button, url, name) {
  const label = (text) => {
    setText(button, text);
    set(button, { "aria-label": `${text} of ${name}` });
  };
  try {
    await navigator.clipboard.writeText(url.textContent);
    label("Copied URL");
  } catch {
    getSelection().selectAllChildren(url);
    label("Selected URL");
  }
  setTimeout(() => label("Copy URL"), 2000);
}

/** The next command while there is no VM, or no worker polls. */
function setHint() {
  const root = by("set-hint");
  const words = make("span");
  const line = make("code");
  root.append(words, line);
  return (vms) => {
    const polled = vms.some((vm) => vm.last_poll_unix_ms !== null);
    show(root, !polled);
    if (vms.length === 0) {
      setText(words, "There are no VMs. Add one: ");
      setText(line, command("vm add spot-0"));
    } else if (!polled) {
      setText(words, "No polls yet. Start a worker for one of these VMs: ");
      setText(line, `YOUR-WORKER --metadata-url ${vms[0].url}`);
    }
  };
}
