"""Uploads standard input as a blob. The connection string is in AZURE_STORAGE_CONNECTION_STRING."""

import argparse
import os
import sys

from azure.storage.blob import BlobClient


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("container")
    parser.add_argument("name")
    given = parser.parse_args()

    connection = os.environ["AZURE_STORAGE_CONNECTION_STRING"]
    with BlobClient.from_connection_string(connection, given.container, given.name) as blob:
        blob.upload_blob(sys.stdin.buffer.read())


if __name__ == "__main__":
    main()
