// Runs Azurite with this program's arguments, until its standard input is closed.
"use strict";

const fs = require("node:fs");

// The longest time for Azurite to write its memory to files.
const PATIENCE_MS = 5000;

// The pipe closes when the starter ends, for any reason; a signal for the group may have missed this process.
process.stdin.once("close", () => {
  process.kill(process.pid, "SIGTERM");
  setTimeout(() => process.exit(1), PATIENCE_MS).unref();
});
// Output then fails too, which must not end Azurite before it has written its files.
process.stdout.on("error", () => {});
process.stdin.on("error", () => process.stdin.destroy());
process.stdin.resume();
// Reading does not keep the process alive: after a signal, Azurite ends when its servers are closed.
process.stdin.unref?.();

// A directory to delete when Azurite has ended.
const discarded = process.env.REPRIEVE_AZURITE_DISCARDS;
if (discarded) {
  process.once("exit", () => fs.rmSync(discarded, { recursive: true, force: true }));
}

require("azurite/dist/src/azurite.js");
