"""Sends a job as a CloudEvents message, as any Python program would, and prints the job's id.

The connection string is in AZURE_STORAGE_CONNECTION_STRING, the job's arguments are JSON on standard input.
"""

import argparse
import json
import os
import sys
import uuid
from datetime import UTC, datetime

from azure.storage.queue import QueueClient, TextBase64EncodePolicy

SOURCE = "/tests/python"


def cloud_event(event_id: str, kind: str, args: object) -> str:
    event = {
        "specversion": "1.0",
        "id": event_id,
        "source": SOURCE,
        "type": kind,
        "time": datetime.now(UTC).isoformat(),
        "datacontenttype": "application/json",
        "data": args,
    }
    return json.dumps(event, ensure_ascii=False)


def job_id(event_id: str) -> str:
    """An event's id is unique within its source only, so Reprieve makes the job's id of both."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{SOURCE}\n{event_id}"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("queue")
    parser.add_argument("kind")
    parser.add_argument("--base64", action="store_true", help="encode the text, as Azure Functions expect it")
    given = parser.parse_args()

    queue = QueueClient.from_connection_string(
        os.environ["AZURE_STORAGE_CONNECTION_STRING"],
        given.queue,
        message_encode_policy=TextBase64EncodePolicy() if given.base64 else None,
    )
    event_id = str(uuid.uuid4())
    with queue:
        queue.send_message(cloud_event(event_id, given.kind, json.load(sys.stdin.buffer)), time_to_live=-1)
    print(job_id(event_id))


if __name__ == "__main__":
    main()
