"""Prints what is in a poison queue, as JSON: of each message its id, its reason and its body. Leaves it there.

Waits until there are as many messages as are expected. The connection string is in AZURE_STORAGE_CONNECTION_STRING.
"""

import argparse
import base64
import json
import os
import sys
import time

from azure.storage.queue import QueueClient, QueueMessage, TextBase64DecodePolicy

PEEKED_MAX = 32
LIMIT_S = 30.0
EVERY_S = 0.1


def letter(message: QueueMessage) -> dict[str, object]:
    """A job keeps its form and has one member more; any other body travels as base64 in an envelope."""
    content = json.loads(message.content)
    reason = content.pop("reprievereason", None)
    wrapped = content.get("type") == "reprieve.dead-letter"
    body = base64.b64decode(content["data_base64"]).decode("utf-8", "backslashreplace") if wrapped else content
    return {"id": message.id, "reason": reason, "body": body}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("queue", help="the queue; `-poison` is added")
    parser.add_argument("--expect", type=int, default=1, metavar="MESSAGES")
    given = parser.parse_args()

    queue = QueueClient.from_connection_string(
        os.environ["AZURE_STORAGE_CONNECTION_STRING"],
        f"{given.queue}-poison",
        message_decode_policy=TextBase64DecodePolicy(),
    )
    deadline = time.monotonic() + LIMIT_S
    with queue:
        while len(messages := queue.peek_messages(PEEKED_MAX)) < given.expect:
            if time.monotonic() > deadline:
                sys.exit(f"there are {len(messages)} messages and not {given.expect} after {LIMIT_S:.0f} s")
            time.sleep(EVERY_S)
    print(json.dumps([letter(message) for message in messages]))


if __name__ == "__main__":
    main()
