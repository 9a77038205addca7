"""Uploads all files of a directory as blobs, with their paths below it as names after a prefix, as
`az storage blob upload-batch` does. The connection string is in AZURE_STORAGE_CONNECTION_STRING."""

import argparse
import os
from pathlib import Path

from azure.storage.blob import ContainerClient


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("container")
    parser.add_argument("prefix")
    parser.add_argument("directory", type=Path)
    given = parser.parse_args()

    connection = os.environ["AZURE_STORAGE_CONNECTION_STRING"]
    with ContainerClient.from_connection_string(connection, given.container) as container:
        for path in given.directory.rglob("*"):
            if path.is_file():
                name = f"{given.prefix}/{path.relative_to(given.directory).as_posix()}"
                container.upload_blob(name, path.read_bytes())


if __name__ == "__main__":
    main()
