// Starts a Redis server of the benchmark's own.
//
// Settings, as BullMQ's "Going to production" asks for them:
//
// - appendonly yes, appendfsync everysec: "1 second per write is enough for most applications". A power cut loses the
//   last second; the death of a process loses nothing.
// - maxmemory-policy noeviction: the only one with which BullMQ is correct.
// - no snapshots besides (save ""): the log holds everything, and a fork in mid-run would cost Redis time.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readdirSync } from "node:fs";
import { createServer } from "node:net";
import path from "node:path";
import { createInterface } from "node:readline";

/** Starts a server that keeps its data in `directory`, and returns its port and what stops it. */
export async function startRedis(directory) {
  const port = await freePort();
  const settings = [
    ["--port", String(port)],
    ["--bind", "127.0.0.1"],
    ["--dir", directory],
    ["--appendonly", "yes"],
    ["--appendfsync", "everysec"],
    ["--maxmemory-policy", "noeviction"],
    ["--save", ""],
  ];
  const { command, env } = redisServer();
  const server = spawn(command, settings.flat(), { env, stdio: ["ignore", "pipe", "inherit"] });
  await ready(server);
  // It keeps logging: an unread pipe would fill up and block it.
  server.stdout.resume();
  return {
    port,
    async stop() {
      server.kill("SIGTERM");
      if (server.exitCode === null && server.signalCode === null) await once(server, "exit");
    },
  };
}

async function ready(server) {
  const log = createInterface({ input: server.stdout });
  const exited = once(server, "exit").then(([code]) => {
    throw new Error(`redis-server exited with ${code} before it was ready`);
  });
  const serving = (async () => {
    for await (const line of log) {
      if (line.includes("Ready to accept connections")) return;
    }
    await exited;
  })();
  await Promise.race([serving, exited]);
  exited.catch(() => {});
}

/** The server that install-redis.sh unpacked, with the libraries beside it, or else the one on PATH. */
function redisServer() {
  const unpacked = path.join(import.meta.dirname, "redis/usr");
  if (!existsSync(unpacked)) return { command: "redis-server", env: process.env };
  const libraries = path.join(unpacked, "lib");
  const folders = readdirSync(libraries).map((name) => path.join(libraries, name));
  return {
    command: path.join(unpacked, "bin/redis-server"),
    env: { ...process.env, LD_LIBRARY_PATH: folders.join(":") },
  };
}

async function freePort() {
  const probe = createServer().listen(0, "127.0.0.1");
  await once(probe, "listening");
  const { port } = probe.address();
  probe.close();
  await once(probe, "close");
  return port;
}
