"""Puts standard input, which is UTF-8, into a queue as the text of one message, exactly as it is.

The connection string is in AZURE_STORAGE_CONNECTION_STRING.
"""

import argparse
import os
import sys

from azure.storage.queue import QueueClient


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("queue")
    given = parser.parse_args()

    text = sys.stdin.buffer.read().decode("utf-8")
    with QueueClient.from_connection_string(os.environ["AZURE_STORAGE_CONNECTION_STRING"], given.queue) as queue:
        queue.send_message(text)


if __name__ == "__main__":
    main()
