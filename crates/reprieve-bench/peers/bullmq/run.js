// BullMQ, run through the benchmark's peer protocol: `throughput`, `enqueue`, `work` and `serve`.
//
// How it is measured, each with its reason:
//
// - one job at a time is one add() that is awaited before the next; in a batch is addBulk() with 1,000 jobs at a time,
//   which is the documentation's way to add many.
// - a worker process is a Node.js process with one Worker (settings: see queue.js), the documentation's way to use
//   more than one core. It listens to this one over IPC, and ends with it.
// - the drain is over when nothing waits and nothing is active, asked every 10 ms: two LLENs, which cost Redis nothing.
// - the CPU time of Redis, for the drain alone, is separate from the workers'.

import { fork } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { Redis } from "ioredis";
import { openQueue, startWorker } from "./queue.js";
import { startRedis } from "./redis.js";

const LIMIT_MS = 180_000;
const POLL_MS = 10;
const BATCH = 1000;
const PAYLOAD = { payload: "x".repeat(200) };

const commands = {
  throughput: { needs: ["jobs", "processes"], run: throughput },
  enqueue: { needs: ["ticks", "tick-ms"], run: enqueue },
  work: { needs: [], run: work },
  serve: { needs: [], run: serve },
  // A worker process of `throughput`.
  drain: { needs: ["port"], run: drain },
};

async function throughput({ directory, jobs, processes }) {
  const enqueue_batch_seconds = await withQueue(directory, (queue) => timed(() => addInBatches(queue, jobs)));
  const report = await withQueue(directory, async (queue, port) => ({
    enqueue_seconds: await timed(() => addOneByOne(queue, jobs)),
    ...(await drainWith(queue, port, directory, processes)),
  }));
  console.log(JSON.stringify({ enqueue_batch_seconds, ...report }));
}

/** Runs an operation on a queue in a Redis of its own, so that neither finds the other's log to rewrite. */
async function withQueue(directory, operation) {
  const data = await mkdtemp(path.join(directory, "redis-"));
  const redis = await startRedis(data);
  const queue = openQueue(redis.port);
  try {
    return await operation(queue, redis.port);
  } finally {
    await queue.close();
    await redis.stop();
    await rm(data, { recursive: true });
  }
}

async function addOneByOne(queue, jobs) {
  for (let job = 0; job < jobs; job++) await queue.add("noop", PAYLOAD);
}

async function addInBatches(queue, jobs) {
  for (let added = 0; added < jobs; added += BATCH) {
    const size = Math.min(BATCH, jobs - added);
    await queue.addBulk(Array.from({ length: size }, () => ({ name: "noop", data: PAYLOAD })));
  }
}

async function drainWith(queue, port, directory, processes) {
  const before = await redisCpuSeconds(port);
  const argv = ["drain", "--dir", directory, "--port", String(port)];
  const workers = [];
  const drain_seconds = await timed(async () => {
    while (workers.length < processes) workers.push(fork(import.meta.filename, argv));
    await empty(queue);
  });
  const server_cpu_seconds = (await redisCpuSeconds(port)) - before;
  const reports = await Promise.all(workers.map(stop));
  return {
    drain_seconds,
    cpu_seconds: reports.reduce((sum, report) => sum + report.cpuSeconds, 0),
    server_cpu_seconds,
    rss_bytes: Math.max(...reports.map((report) => report.rssBytes)),
    completed: reports.reduce((sum, report) => sum + report.completed, 0),
  };
}

async function empty(queue) {
  const limit = performance.now() + LIMIT_MS;
  while (performance.now() < limit) {
    const { waiting, active } = await queue.getJobCounts("waiting", "active");
    if (waiting + active === 0) return;
    await sleep(POLL_MS);
  }
}

async function redisCpuSeconds(port) {
  const client = new Redis(port);
  const info = await client.info("cpu");
  await client.quit();
  const seconds = (name) => Number(info.match(new RegExp(`^${name}:([\\d.]+)`, "m"))[1]);
  return seconds("used_cpu_user") + seconds("used_cpu_sys");
}

/** Asks a worker process to close, and returns its report. */
async function stop(worker) {
  worker.send("close");
  const exited = once(worker, "exit").then(([code, signal]) => {
    throw new Error(`a worker process ended with ${signal ?? code} and reported nothing`);
  });
  const [report] = await Promise.race([once(worker, "message"), exited]);
  await exited.catch(() => {});
  return report;
}

async function drain({ directory, port }) {
  const worker = startWorker(port, directory);
  let completed = 0;
  worker.on("completed", () => completed++);
  const orphaned = () => process.exit(1);
  process.once("disconnect", orphaned);
  await once(process, "message");
  await worker.close();
  const { userCPUTime, systemCPUTime } = process.resourceUsage();
  process.send({ completed, cpuSeconds: (userCPUTime + systemCPUTime) / 1e6, rssBytes: await peakMemory() });
  process.off("disconnect", orphaned);
  process.disconnect();
}

/** From /proc, because resourceUsage() includes the memory of the parent that this process was forked from. */
async function peakMemory() {
  const status = await readFile("/proc/self/status", "utf8");
  return Number(status.match(/^VmHWM:\s*(\d+) kB$/m)[1]) * 1024;
}

async function enqueue({ directory, ticks, "tick-ms": milliseconds }) {
  const queue = openQueue(await servedPort(directory));
  await queue.add("ticks", { count: ticks, milliseconds });
  await queue.close();
}

async function work({ directory }) {
  const worker = startWorker(await servedPort(directory), directory);
  await once(process, "SIGTERM");
  await worker.close();
}

async function serve({ directory }) {
  const redis = await startRedis(directory);
  await writeFile(path.join(directory, "port"), String(redis.port));
  console.log("ready");
  process.stdin.resume();
  await once(process.stdin, "close");
  await redis.stop();
}

async function servedPort(directory) {
  return Number(await readFile(path.join(directory, "port"), "utf8"));
}

async function timed(operation) {
  const started = performance.now();
  await operation();
  return (performance.now() - started) / 1000;
}

/** Parses the command line; undefined for an unknown command. */
function read(argv) {
  const [name, ...rest] = argv;
  const command = Object.hasOwn(commands, name) ? commands[name] : undefined;
  if (command === undefined) return undefined;
  const options = Object.fromEntries(["dir", ...command.needs].map((option) => [option, { type: "string" }]));
  try {
    const { dir, ...values } = parseArgs({ args: rest, options }).values;
    const numbers = Object.fromEntries(command.needs.map((option) => [option, Number(values[option])]));
    if (dir === undefined || Object.values(numbers).some((value) => !Number.isInteger(value)))
      return undefined;
    return async () => {
      const directory = path.resolve(dir);
      await mkdir(directory, { recursive: true });
      await command.run({ directory, ...numbers });
    };
  } catch {
    return undefined;
  }
}

const run = read(process.argv.slice(2));
if (run === undefined) {
  const names = Object.keys(commands).join("|");
  console.error(
    `usage: run.js ${names} --dir DIR [--jobs N --processes P] [--ticks N --tick-ms M] [--port N]`,
  );
  process.exitCode = 2;
} else {
  await run().catch((error) => {
    console.error(`bullmq: ${error.message}`);
    process.exitCode = 1;
  });
}
