"""The application that huey's consumer runs: one queue, a job that does nothing and a job that takes a while.

Settings, each with its reason:

- `SqliteHuey(filename=...)` and nothing else: WAL, an 8 MB cache and the synchronous setting that Python's SQLite was
  built with are its defaults, and the documentation calls them a good balance.
- Jobs return None, so no result is stored: the production checklist asks for that, or for results to be read.
- Interrupted jobs are enqueued again by a SIGNAL_INTERRUPTED handler: the documentation's recipe, also on its
  production checklist. Without it they are lost.
"""

import os
import threading
import time
from pathlib import Path

from huey import SqliteHuey
from huey.signals import SIGNAL_INTERRUPTED

DIRECTORY = Path(os.environ["PEER_DIRECTORY"])

huey = SqliteHuey(filename=str(DIRECTORY / "queue.db"))

done = 0
counting = threading.Lock()


@huey.task()
def noop(payload):
    """Does nothing, and is counted, as the queue keeps no record of jobs that are done."""
    global done
    with counting:
        done += 1


@huey.task()
def ticks(count, milliseconds):
    """Appends a line to the journal at each tick, and starts again from the first one when it is run again."""
    journal = os.open(DIRECTORY / "journal", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        for tick in range(count):
            os.write(journal, f"{time.time_ns() // 1_000_000} {os.getpid()} {tick}\n".encode())
            time.sleep(milliseconds / 1000)
    finally:
        os.close(journal)


@huey.signal(SIGNAL_INTERRUPTED)
def enqueue_again(_signal, task):
    huey.enqueue(task)


@huey.on_shutdown()
def report_done():
    """Reports the number of jobs of this process. Each of its threads calls it: the last number is right."""
    with counting:
        (DIRECTORY / f"done-{os.getpid()}").write_text(str(done))
