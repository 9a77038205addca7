// The scenarios that can be run, for whom and how fast, and those under way.

import { keep, make, offer, say } from "./dom.js";
import * as mock from "./mock.js";
import { count, span } from "./words.js";

/** How many times faster than in life it is usually wanted. */
const SPEEDS = [1, 2, 5, 10, 60, 600];

const by = (id) => document.getElementById(id);

/** Keeps the scenarios up to date. `tell` runs what a button does. */
export function scenarios(tell) {
  const target = by("target");
  const speed = by("speed");
  let changing = false;
  speed.addEventListener("change", async () => {
    changing = true;
    await tell(speed, () => mock.setSpeed(Number(speed.value)));
    changing = false;
  });
  const run = (name, button) => tell(button, () => mock.run(name, target.value || null));
  return ({ state, scenarios }, now) => {
    offer(target, state.vms.map(({ name }) => [name, name]));
    const speeds = [...new Set([...SPEEDS, state.speed])].sort((one, other) => one - other);
    offer(speed, speeds.map((times) => [String(times), times === 1 ? "as in life" : `${times} times`]));
    // Others may change it too; but not while somebody is choosing.
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
  return { root, update: (scenario) => say(description, scenario.description) };
}

/** Several of the same may run at once, also for the same VM. */
function numbered(all, now) {
  const seen = new Map();
  return all.map((run) => {
    const name = `${run.scenario} ${run.target}`;
    seen.set(name, (seen.get(name) ?? 0) + 1);
    return { run, now, key: `${name} ${seen.get(name)}` };
  });
}

function running() {
  const said = make("p");
  const update = ({ run, now }) => {
    const left = `${count(run.steps_left, "step")} left, the next in ${span(run.next_step_unix_ms - now)}`;
    say(said, `${run.scenario} for ${run.target}: ${left}`);
  };
  return { root: make("li", {}, said), update };
}
