"""Waits for a blob and writes it to standard output, as a caller does who waits for a job's result.

The connection string is in AZURE_STORAGE_CONNECTION_STRING.
"""

import argparse
import os
import sys
import time

from azure.core.exceptions import ResourceNotFoundError
from azure.storage.blob import BlobClient

LIMIT_S = 30.0
EVERY_S = 0.1


def wait_for(blob: BlobClient) -> bytes:
    deadline = time.monotonic() + LIMIT_S
    while True:
        try:
            return blob.download_blob().readall()
        except ResourceNotFoundError:
            if time.monotonic() > deadline:
                sys.exit(f"there is no {blob.blob_name} in {blob.container_name} after {LIMIT_S:.0f} s")
            time.sleep(EVERY_S)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("container")
    parser.add_argument("name")
    given = parser.parse_args()

    connection = os.environ["AZURE_STORAGE_CONNECTION_STRING"]
    with BlobClient.from_connection_string(connection, given.container, given.name) as blob:
        sys.stdout.buffer.write(wait_for(blob))


if __name__ == "__main__":
    main()
