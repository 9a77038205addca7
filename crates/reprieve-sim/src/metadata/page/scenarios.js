// The scenarios, their target and speed, and the running ones.

import { keep, make, offer, setText } from "./dom.js";
import * as mock from "./mock.js";
import { count, span } from "./words.js";

/** The speeds on offer. */
const SPEEDS = [1, 2, 5, 10, 60, 600];

const by = (id) => document.getElementById(id);

/** Keeps the scenarios up to date. `perform` runs a button's action. */
export function scenarios(perform) {
  const target = by("target");
  const speed = by("speed");
  let changing = false;
  speed.addEventListener("change", async () => {
    changing = true;
    await perform(speed, () => mock.setSpeed(Number(speed.value)));
    changing = false;
  });
  const run = (name, button) => perform(button, () => mock.run(name, target.value || null));
  return ({ state, scenarios }, now) => {
    offer(target, state.vms.map(({ name }) => [name, name]));
    const speeds = [...new Set([...SPEEDS, state.speed])].sort((one, other) => one - other);
    offer(speed, speeds.map((times) => [String(times), times === 1 ? "real time" : `${times}×`]));
    // Others may change the speed too; do not overwrite a choice that is being made.
    if (!changing && document.activeElement !== speed) speed.value = String(state.speed);
    keep(by("running"), numbered(state.running, now), {
      key: ({ key }) => key,
      view: () => running(),
      refuge: by("scenarios-title"),
    });
    keep(by("scenarios"), scenarios, {
      key: ({ name }) => name,
      view: ({ name }) => scenario(name, run),
      refuge: by("scenarios-title"),
    });
  };
}

function scenario(name, run) {
  const button = make("button", { type: "button", "aria-label": `Run ${name}` }, "Run");
  button.addEventListener("click", () => run(name, button));
  const description = make("p");
  const root = make("li", {}, make("div", {}, make("h3", {}, name), description), button);
  return { root, update: (scenario) => setText(description, scenario.description) };
}

/** Numbers the runs: one scenario may run several times at once, even for one VM. */
function numbered(all, now) {
  const seen = new Map();
  return all.map((run) => {
    const name = `${run.scenario} ${run.target}`;
    seen.set(name, (seen.get(name) ?? 0) + 1);
    return { run, now, key: `${name} ${seen.get(name)}` };
  });
}

function running() {
  const text = make("p");
  const update = ({ run, now }) => {
    const left = `${count(run.steps_left, "step")} left, the next in ${span(run.next_step_unix_ms - now)}`;
    setText(text, `${run.scenario} for ${run.target}: ${left}`);
  };
  return { root: make("li", {}, text), update };
}
