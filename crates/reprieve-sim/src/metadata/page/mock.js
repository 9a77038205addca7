// Calls the mock's control API. Errors are thrown with one sentence.

/** The longest time for an answer. */
const ANSWER_MS_MAX = 5000;

/** Clock differences below this are ignored: the mock's Date header has whole seconds. */
const SAME_CLOCK_MS = 2000;

/** There was no answer, or not from a mock. */
export class Away extends Error {}

async function call(method, path, body) {
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
  let parsed;
  try {
    parsed = text === "" ? null : JSON.parse(text);
  } catch (error) {
    throw new Away(`what answers ${path} is no mock (status ${answer.status})`, { cause: error });
  }
  if (!answer.ok) throw new Error(parsed?.error ?? `the mock answered with status ${answer.status}`);
  return { body: parsed, date: Date.parse(answer.headers.get("date")) };
}

/** Reads the state, and by how many milliseconds the mock's clock is ahead of the browser's. */
export async function read() {
  const sent = Date.now();
  const [state, scenarios] = await Promise.all([call("GET", "control/state"), call("GET", "control/scenarios")]);
  // The header is up to a second old when it is sent.
  const ahead = state.date + 500 - (sent + Date.now()) / 2;
  return {
    state: state.body,
    scenarios: scenarios.body,
    ahead: Math.abs(ahead) > SAME_CLOCK_MS ? ahead : 0,
  };
}

const named = (id) => ({ event_id: id });

export const evict = (vm, notice) => call("POST", "control/evict", { vm, notice });
export const start = (id) => call("POST", "control/start", named(id));
export const complete = (id) => call("POST", "control/complete", named(id));
export const withdraw = (id) => call("POST", "control/withdraw", named(id));
export const run = (scenario, target) =>
  call("POST", `control/scenarios/${encodeURIComponent(scenario)}/run`, { target });
export const setSpeed = (speed) => call("PUT", "control/speed", { speed });
export const addFault = (rule) => call("POST", "control/faults", rule);
export const removeFault = (id) => call("DELETE", `control/faults/${id}`);
export const clearFaults = () => call("DELETE", "control/faults");
