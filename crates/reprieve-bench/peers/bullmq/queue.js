// The application: one queue, a job that does nothing and a job that takes a while.
//
// Settings, each with its reason:
//
// - concurrency 50: the documentation's example for jobs that wait, which these do. More was not faster.
// - removeOnComplete { count: 1000 }, removeOnFail { count: 5000 }: the documentation's "good practice". To keep every
//   job, the default, is slower and fills Redis.
// - everything else is the default: locks of 30 s, renewed every 15 s, and a look for stalled jobs every 30 s.
// - close() on SIGTERM, as "Graceful shutdown" shows: it waits for the jobs that run, however long they take.

import { open } from "node:fs/promises";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { Queue, Worker } from "bullmq";

const NAME = "bench";

export function openQueue(port) {
  return new Queue(NAME, { connection: { host: "127.0.0.1", port } });
}

/** Starts a worker. Its jobs write their journal into `directory`. */
export function startWorker(port, directory) {
  const worker = new Worker(NAME, (job) => jobs[job.name](job.data, directory), {
    connection: { host: "127.0.0.1", port },
    concurrency: 50,
    removeOnComplete: { count: 1000 },
    removeOnFail: { count: 5000 },
  });
  worker.on("error", (error) => console.error(`worker: ${error.message}`));
  return worker;
}

const jobs = {
  async noop() {},

  /** Appends a line to the journal at each tick, and starts again from the first one when it is run again. */
  async ticks({ count, milliseconds }, directory) {
    const journal = await open(path.join(directory, "journal"), "a");
    try {
      for (let tick = 0; tick < count; tick++) {
        await journal.write(`${Date.now()} ${process.pid} ${tick}\n`);
        await sleep(milliseconds);
      }
    } finally {
      await journal.close();
    }
  },
};
