"""huey, run through the benchmark's peer protocol: `throughput`, `enqueue` and `work`.

The consumer is huey's own, started as its documentation shows. Settings, each with its reason:

- `work` is the documentation's systemd unit: `-w 4 -k thread -g TERM -t SECONDS`. SIGTERM stops gracefully, and jobs
  that take longer are interrupted (and enqueued again, see app.py). 5 seconds, as a Spot notice may leave 10.
- `throughput` with one process is `-w 4 -k thread`, the same consumer, and with P processes `-w P -k process`. Four
  threads were faster than one and than one process: they work while another waits for the disk.
- `-m 1`: an idle consumer looks every second at the least, the documentation's "very short polling interval" (the
  default backs off to 10 seconds).
- `-q`: no line of log for each job.
- Jobs are enqueued one after the other: huey has no call that enqueues several in one transaction.
"""

import argparse
import json
import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LIMIT_SECONDS = 180
POLL_SECONDS = 0.01
PAYLOAD = "x" * 200

# The sources' directory stays as it is.
sys.dont_write_bytecode = True


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True, dest="command")
    throughput = commands.add_parser("throughput")
    throughput.add_argument("--jobs", type=int, required=True)
    throughput.add_argument("--processes", type=int, required=True)
    enqueue = commands.add_parser("enqueue")
    enqueue.add_argument("--ticks", type=int, required=True)
    enqueue.add_argument("--tick-ms", type=int, required=True)
    work = commands.add_parser("work")
    for command in (throughput, enqueue, work):
        command.add_argument("--dir", type=Path, required=True)
    arguments = parser.parse_args()

    directory = arguments.dir.resolve()
    directory.mkdir(parents=True, exist_ok=True)
    if arguments.command == "throughput":
        print(json.dumps(measure_throughput(directory, arguments.jobs, arguments.processes)))
    elif arguments.command == "enqueue":
        application(directory).ticks(arguments.ticks, arguments.tick_ms)
    else:
        command, environment = consumer(directory, "-w", "4", "-k", "thread", "-g", "TERM", "-t", "5")
        os.execve(command[0], command, environment)


def application(directory):
    """The application's module, which finds its directory in the environment as the consumer's does."""
    os.environ["PEER_DIRECTORY"] = str(directory)
    import app

    return app


def consumer(directory, *options):
    """The command line of huey's consumer, and its environment."""
    environment = os.environ | {
        "PEER_DIRECTORY": str(directory),
        "PYTHONPATH": str(Path(__file__).parent),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    program = Path(sys.executable).with_name("huey_consumer")
    return [str(program), "app.huey", "-q", "-m", "1", *options], environment


def measure_throughput(parent, jobs, processes):
    directory = Path(tempfile.mkdtemp(prefix="huey-", dir=parent))
    try:
        noop = application(directory).noop
        started = time.monotonic()
        for _ in range(jobs):
            noop(PAYLOAD)
        enqueue_seconds = time.monotonic() - started

        drain_seconds, rss_bytes = drain(directory, processes)
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return {
            "enqueue_seconds": enqueue_seconds,
            "enqueue_batch_seconds": None,
            "drain_seconds": drain_seconds,
            "cpu_seconds": usage.ru_utime + usage.ru_stime,
            "rss_bytes": rss_bytes,
            "completed": sum(int(count.read_text()) for count in directory.glob("done-*")),
        }
    finally:
        shutil.rmtree(directory)


def drain(directory, processes):
    """Runs a consumer until the queue is empty, or up to the limit; returns how long it took and its peak memory.

    A job leaves the queue when it is started, so at the end as many as there are workers may still be doing nothing.
    """
    workers = ["-w", str(processes), "-k", "process"] if processes > 1 else ["-w", "4", "-k", "thread"]
    command, environment = consumer(directory, *workers)
    # Reads what is committed, without a lock that a worker would wait for.
    queue = sqlite3.connect(f"file:{directory / 'queue.db'}?mode=ro", uri=True)
    started = time.monotonic()
    process = subprocess.Popen(command, env=environment, stdout=sys.stderr)
    try:
        while process.poll() is None and time.monotonic() - started < LIMIT_SECONDS:
            if queue.execute("select 1 from task limit 1").fetchone() is None:
                break
            time.sleep(POLL_SECONDS)
        return time.monotonic() - started, peak_memory(process.pid)
    finally:
        queue.close()
        # The graceful one of huey's signals by default.
        process.send_signal(signal.SIGINT)
        process.wait()


def peak_memory(pid):
    """The most that a process or a child of it had in memory, in bytes.

    From /proc, because getrusage of a child includes the memory of the parent that it was forked from.
    """
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    statuses = [Path(f"/proc/{process}/status").read_text() for process in (pid, *children)]
    return max(
        int(line.split()[1]) * 1024 for status in statuses for line in status.splitlines() if "VmHWM" in line
    )


if __name__ == "__main__":
    main()
