"""Celery, run through the benchmark's peer protocol: `storage`.

The worker is Celery's own, with the options that its documentation gives for speed, each with its reason:

- the prefork pool with a process per core, the default. Threads and gevent were slower.
- `--without-gossip --without-mingle --without-heartbeat`: workers do not need to know of each other.
- `--loglevel ERROR`: no lines of log for each task.

It is measured as the others are: a first portion is worked off and does not count, then the worker is stopped while the
queue is filled, and the time runs from its continuation until the last task is done.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

LIMIT_SECONDS = 180
POLL_SECONDS = 0.005
PAYLOAD = "x" * 200
FIRST = 64

# The account that Azurite always has; its key is the same everywhere, and no secret.
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

# The sources' directory stays as it is.
sys.dont_write_bytecode = True


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True, dest="command")
    storage = commands.add_parser("storage")
    storage.add_argument("--jobs", type=int, required=True)
    storage.add_argument("--queues", required=True)
    storage.add_argument("--dir", type=Path, required=True)
    arguments = parser.parse_args()

    directory = arguments.dir.resolve()
    directory.mkdir(parents=True, exist_ok=True)
    os.environ["PEER_BROKER"] = f"azurestoragequeues://{KEY}@{arguments.queues}"
    os.environ["PEER_DONE"] = str(directory / "done")
    print(json.dumps(measure(directory, arguments.jobs)))


def measure(directory, jobs):
    import app

    first = min(FIRST, jobs)
    enqueue(app.noop, first)
    worker = start(directory)
    try:
        wait(worker, directory, first)
        signal_all(worker, signal.SIGSTOP)
        enqueue_seconds = enqueue(app.noop, jobs)

        before = cpu_seconds(worker)
        started = time.monotonic()
        signal_all(worker, signal.SIGCONT)
        completed = wait(worker, directory, first + jobs) - first
        drain_seconds = time.monotonic() - started
        return {
            "enqueue_seconds": enqueue_seconds,
            "drain_seconds": drain_seconds,
            "cpu_seconds": cpu_seconds(worker) - before,
            "rss_bytes": memory(worker),
            "completed": completed,
        }
    finally:
        stop(worker)


def enqueue(task, jobs):
    started = time.monotonic()
    for _ in range(jobs):
        task.delay(PAYLOAD)
    return time.monotonic() - started


def start(directory):
    program = Path(sys.executable).with_name("celery")
    options = ["--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "ERROR"]
    environment = os.environ | {
        "PYTHONPATH": str(Path(__file__).parent),
        "PYTHONDONTWRITEBYTECODE": "1",
        # It warns of this when the machine's user is root.
        "C_FORCE_ROOT": "1",
    }
    command = [str(program), "--app", "app", "worker", "--pool", "prefork", *options]
    return subprocess.Popen(command, cwd=directory, env=environment, stdout=sys.stderr)


def wait(worker, directory, jobs):
    """Waits until so many tasks are done, or up to the limit; returns how many are."""
    done = directory / "done"
    started = time.monotonic()
    while worker.poll() is None and time.monotonic() - started < LIMIT_SECONDS:
        if done.stat().st_size >= jobs:
            break
        time.sleep(POLL_SECONDS)
    return done.stat().st_size


def stop(worker):
    signal_all(worker, signal.SIGCONT)
    worker.terminate()
    try:
        worker.wait(30)
    except subprocess.TimeoutExpired:
        signal_all(worker, signal.SIGKILL)
        worker.wait()


def processes(worker):
    """The worker's id and those of the processes of its pool."""
    children = Path(f"/proc/{worker.pid}/task/{worker.pid}/children").read_text().split()
    return [worker.pid, *map(int, children)]


def signal_all(worker, number):
    if worker.poll() is None:
        for process in processes(worker):
            os.kill(process, number)


def cpu_seconds(worker):
    ticks = 0
    for process in processes(worker):
        after_name = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
        ticks += int(after_name[11]) + int(after_name[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def memory(worker):
    """Returns the memory of all its processes, in bytes. Pages that they share are counted once."""
    rollups = [Path(f"/proc/{process}/smaps_rollup").read_text() for process in processes(worker)]
    lines = [line for rollup in rollups for line in rollup.splitlines()]
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


if __name__ == "__main__":
    main()
