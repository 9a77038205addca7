// Speaks to the mock: asks for all there is to know, and tells it what to do. What goes wrong is thrown in one sentence.

/** How long an answer may take. */
const ANSWER_MS_MAX = 5000;

/** A clock that differs by less than this many milliseconds from the mock's, which tells whole seconds, is the same. */
const SAME_CLOCK_MS = 2000;

/** Nobody answered, or nobody who is a mock. */
export class Away extends Error {}

async function ask(method, path, body) {
  let answer;
  try {
    answer = await fetch(path, {
      method,
      headers: body === undefined ? {} : { "content-type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: AbortSignal.timeout(ANSWER_MS_MAX),
    });
  } catch (error) {
    throw new Away("the mock does not answer", { cause: error });
  }
  const text = await answer.text().catch((error) => { throw new Away("the mock's answer broke off", { cause: error }); });
  let said;
  try {
    said = text === "" ? null : JSON.parse(text);
  } catch (error) {
    throw new Away(`what answers ${path} is no mock (status ${answer.status})`, { cause: error });
  }
  if (!answer.ok) throw new Error(said?.error ?? `the mock answered with status ${answer.status}`);
  return { said, date: Date.parse(answer.headers.get("date")) };
}

/** All there is to know, with how many milliseconds the mock's clock is ahead of the browser's. */
export async function look() {
  const asked = Date.now();
  const [state, scenarios] = await Promise.all([ask("GET", "control/state"), ask("GET", "control/scenarios")]);
  // The header is up to a second old when it is sent.
  const ahead = state.date + 500 - (asked + Date.now()) / 2;
  return {
    state: state.said,
    scenarios: scenarios.said,
    ahead: Math.abs(ahead) > SAME_CLOCK_MS ? ahead : 0,
  };
}

const named = (id) => ({ event_id: id });

export const evict = (vm, notice) => ask("POST", "control/evict", { vm, notice });
export const start = (id) => ask("POST", "control/start", named(id));
export const complete = (id) => ask("POST", "control/complete", named(id));
export const withdraw = (id) => ask("POST", "control/withdraw", named(id));
export const run = (scenario, target) =>
  ask("POST", `control/scenarios/${encodeURIComponent(scenario)}/run`, { target });
export const setSpeed = (speed) => ask("PUT", "control/speed", { speed });
export const addFault = (rule) => ask("POST", "control/faults", rule);
export const removeFault = (id) => ask("DELETE", `control/faults/${id}`);
export const clearFaults = () => ask("DELETE", "control/faults");
