// Formats times, counts and log entries.

const pad = (number) => String(number).padStart(2, "0");

/** The local time of day. */
export function time(ms) {
  const at = new Date(ms);
  return `${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}`;
}

/** A duration in its two largest units. */
export function span(ms) {
  const seconds = Math.max(0, Math.round(ms / 1000));
  const [minutes, hours, days] = [60, 3600, 86_400].map((unit) => Math.floor(seconds / unit));
  if (days > 0) return `${days} d ${hours % 24} h`;
  if (hours > 0) return `${hours} h ${minutes % 60} min`;
  if (minutes > 0) return `${minutes} min ${seconds % 60} s`;
  return `${seconds} s`;
}

/** A number with its noun. */
export function count(number, noun) {
  return `${number} ${noun}${number === 1 ? "" : "s"}`;
}

/** The first names; a set may have thousands. */
export function names(all, most = 4) {
  const first = all.slice(0, most).join(", ");
  return all.length > most ? `${first} and ${all.length - most} more` : first;
}

/** A command line for this mock. */
export function command(words) {
  const isDefault = location.origin === "http://127.0.0.1:8169";
  return `reprieve metadata ${words}${isDefault ? "" : ` --url ${location.origin}`}`;
}

/** A log entry as a sentence. */
export function sentence({ what, event_type: type, vms = [], note }) {
  const who = names(vms);
  switch (what) {
    case "announced": return `${type} for ${who} announced`;
    case "approved": return `${who} approved ${type}`;
    case "started": return `${type} of ${who} started`;
    case "completed": return `${type} of ${who} ended`;
    case "withdrawn": return `${type} for ${who} withdrawn`;
    case "vm_added": return `${who} added`;
    case "vm_gone": return `${who} removed`;
    case "scenario_began": return `Scenario ${note} started for ${who}`;
    case "step_failed": return `A step failed: ${note}`;
    case "fault_added": return `Fault added: ${note}${who && ` of ${who}`}`;
    case "restarted": return "Incarnation restarted at 1";
    default: return [what, type, who, note].filter(Boolean).join(" ");
  }
}
