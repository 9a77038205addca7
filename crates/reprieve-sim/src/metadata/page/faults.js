// The active faults, and a form to add one.

import { keep, make, offer, setText, show } from "./dom.js";
import * as mock from "./mock.js";
import { count, time } from "./words.js";

const by = (id) => document.getElementById(id);

/** Keeps the faults up to date. `perform` runs a button's action. */
export function faults(perform) {
  const clear = by("clear-faults");
  clear.addEventListener("click", () => perform(clear, mock.clearFaults));
  const form = by("fault");
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    perform(form.querySelector("[type=submit]"), () => mock.addFault(rule()));
  });
  return ({ state }) => {
    keep(by("faults"), state.faults, {
      key: ({ id }) => id,
      view: ({ id }) => fault(id, perform),
      refuge: by("faults-title"),
    });
    show(by("faults-hint"), state.faults.length === 0);
    show(clear, state.faults.length > 1, by("faults-title"));
    offer(by("fault-vm"), [["", "all VMs"], ...state.vms.map(({ name }) => [name, name])]);
  };
}

/** Returns the form's fault; blank fields are left out. */
function rule() {
  const fault = { endpoint: by("fault-endpoint").value, kind: by("fault-kind").value };
  const [vm, requests, lasts] = ["fault-vm", "fault-requests", "fault-for"].map((id) => by(id).value.trim());
  if (vm) fault.vm = vm;
  if (requests) fault.requests = Number(requests);
  if (lasts) fault.for = lasts;
  return fault;
}

function fault(id, perform) {
  const title = make("h3");
  const more = make("p");
  const button = make("button", { type: "button" }, "Clear");
  button.addEventListener("click", () => perform(button, () => mock.removeFault(id)));
  const root = make("li", {}, make("div", {}, title, more), button);
  const update = ({ kind, endpoint, vm, version, requests_left: left, until_unix_ms: until, befell }) => {
    setText(title, kind);
    button.setAttribute("aria-label", `Clear fault ${id}, ${kind}`);
    const scope = `requests for ${endpoint}${version ? ` in ${version}` : ""} of ${vm ?? "all VMs"}`;
    const limits = [left === null ? "" : `${left} more`, until === null ? "" : `until ${time(until)}`].filter(Boolean);
    const long = limits.length === 0 ? "until it is cleared" : limits.join(", ");
    setText(more, `${scope}: ${long}; ${count(befell, "request")} affected`);
  };
  return { root, update };
}
