"""The application that Celery's worker runs: one queue on Azure Storage, and a task that does nothing.

Settings, each with its reason:

- `worker_prefetch_multiplier=32`: for many short tasks the documentation wants a large one. With a process per core, the
  default, 64 tasks are in hand.
- `task_ignore_result=True`: the documentation's first advice for tasks without a use for their result.
- `worker_enable_remote_control=False`: its mailbox is another queue, which would be asked for messages all the time. The
  transport has no fanout, so it would not work.
- `broker_connection_retry_on_startup=True`: what it does anyway, without the warning.
- Acknowledging late is left out: the transport deletes each message when it receives it, so there is nothing left to
  acknowledge. A worker that is killed loses what it had prefetched.
"""

import os

from celery import Celery

app = Celery("app", broker=os.environ["PEER_BROKER"])
app.conf.update(
    task_default_queue="celery",
    worker_prefetch_multiplier=32,
    task_ignore_result=True,
    worker_enable_remote_control=False,
    broker_connection_retry_on_startup=True,
)

done = os.open(os.environ["PEER_DONE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)


@app.task
def noop(payload):
    """Does nothing, and is counted by a byte, as the queue keeps no record of tasks that are done."""
    os.write(done, b".")
