// How times and happenings are said.

const pad = (number) => String(number).padStart(2, "0");

/** The time of day, here. */
export function time(ms) {
  const at = new Date(ms);
  return `${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}`;
}

/** How long that is, in its two largest units. */
export function span(ms) {
  const seconds = Math.max(0, Math.round(ms / 1000));
  const [minutes, hours, days] = [60, 3600, 86_400].map((unit) => Math.floor(seconds / unit));
  if (days > 0) return `${days} d ${hours % 24} h`;
  if (hours > 0) return `${hours} h ${minutes % 60} min`;
  if (minutes > 0) return `${minutes} min ${seconds % 60} s`;
  return `${seconds} s`;
}

/** How many of them. */
export function count(number, noun) {
  return `${number} ${noun}${number === 1 ? "" : "s"}`;
}

/** At most so many names; a set may have thousands. */
export function names(all, most = 4) {
  const said = all.slice(0, most).join(", ");
  return all.length > most ? `${said} and ${all.length - most} more` : said;
}

/** A command line for this mock. */
export function command(words) {
  const isDefault = location.origin === "http://127.0.0.1:8169";
  return `reprieve metadata ${words}${isDefault ? "" : ` --url ${location.origin}`}`;
}

/** What a line of the timeline says. */
export function sentence({ what, event_type: type, vms = [], note }) {
  const who = names(vms);
  switch (what) {
    case "announced": return `${type} for ${who} is announced`;
    case "approved": return `${who} approves ${type}`;
    case "started": return `${type} of ${who} has begun`;
    case "completed": return `${type} of ${who} is over`;
    case "withdrawn": return `${type} for ${who} is withdrawn`;
    case "vm_added": return `${who} joins the set`;
    case "vm_gone": return `${who} is gone`;
    case "scenario_began": return `Scenario ${note} runs for ${who}`;
    case "step_failed": return `A step could not be done: ${note}`;
    case "fault_added": return `Requests go wrong: ${note}${who && ` of ${who}`}`;
    case "restarted": return "The incarnation begins again at 1";
    default: return [what, type, who, note].filter(Boolean).join(" ");
  }
}
