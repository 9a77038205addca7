// What goes wrong with requests: the faults that stand, and a form to add one.

import { keep, make, offer, say, show } from "./dom.js";
import * as mock from "./mock.js";
import { count, time } from "./words.js";

const by = (id) => document.getElementById(id);

/** Keeps the faults up to date. `tell` runs what a button does. */
export function faults(tell) {
  const clear = by("clear-faults");
  clear.addEventListener("click", () => tell(clear, mock.clearFaults));
  const form = by("fault");
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    tell(form.querySelector("[type=submit]"), () => mock.addFault(rule()));
  });
  return ({ state }) => {
    keep(by("faults"), state.faults, {
      key: ({ id }) => id,
      view: ({ id }) => fault(id, tell),
      refuge: by("faults-title"),
    });
    show(by("faults-hint"), state.faults.length === 0);
    show(clear, state.faults.length > 1, by("faults-title"));
    offer(by("fault-vm"), [["", "all VMs"], ...state.vms.map(({ name }) => [name, name])]);
  };
}

/** What the form asks for. What is left blank is not said. */
function rule() {
  const said = { endpoint: by("fault-endpoint").value, kind: by("fault-kind").value };
  const [vm, requests, lasts] = ["fault-vm", "fault-requests", "fault-for"].map((id) => by(id).value.trim());
  if (vm) said.vm = vm;
  if (requests) said.requests = Number(requests);
  if (lasts) said.for = lasts;
  return said;
}

function fault(id, tell) {
  const title = make("h3");
  const more = make("p");
  const button = make("button", { type: "button" }, "Clear");
  button.addEventListener("click", () => tell(button, () => mock.removeFault(id)));
  const root = make("li", {}, make("div", {}, title, more), button);
  const update = ({ kind, endpoint, vm, requests_left: left, until_unix_ms: until, befell }) => {
    say(title, kind);
    button.setAttribute("aria-label", `Clear fault ${id}, ${kind}`);
    const whose = `requests for ${endpoint} of ${vm ?? "all VMs"}`;
    const limits = [left === null ? "" : `${left} more`, until === null ? "" : `until ${time(until)}`].filter(Boolean);
    const long = limits.length === 0 ? "until it is cleared" : limits.join(", ");
    say(more, `${whose}: ${long}; befell ${count(befell, "request")}`);
  };
  return { root, update };
}
