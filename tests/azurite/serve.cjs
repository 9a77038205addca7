// Runs Azurite, with the arguments that this is given, for as long as whoever started it holds its standard input open.
"use strict";

const fs = require("node:fs");

// How long Azurite may take to write down what it has in memory.
const PATIENCE_MS = 5000;

// When the starter ends, in whatever way, the pipe ends too, and this process gets the signal that it may have missed.
process.stdin.once("close", () => {
  process.kill(process.pid, "SIGTERM");
  setTimeout(() => process.exit(1), PATIENCE_MS).unref();
});
// Then nobody reads what is said either, and that is no reason to end before everything is written down.
process.stdout.on("error", () => {});
process.stdin.on("error", () => process.stdin.destroy());
process.stdin.resume();
// Reading keeps nothing alive: after a signal of somebody else's, Azurite ends when its servers are closed.
process.stdin.unref?.();

// A directory that is of no use to anybody once Azurite has ended.
const discarded = process.env.REPRIEVE_AZURITE_DISCARDS;
if (discarded) {
  process.once("exit", () => fs.rmSync(discarded, { recursive: true, force: true }));
}

require("azurite/dist/src/azurite.js");
