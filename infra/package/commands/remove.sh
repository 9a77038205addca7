#!/bin/sh
# The remove command: calls the remove.sh of the installed package. A shell gets this text as its
# command, as root, in the download folder. It does not need the download.
set -eu
PATH=/usr/sbin:/usr/bin:/sbin:/bin
export PATH

if [ "$(id -u)" != 0 ]; then
  echo "reprieve-worker: this needs root; nothing was changed" >&2
  exit 11
fi
exec 9>/run/reprieve-package.lock
if ! flock -w 300 9; then
  echo "reprieve-worker: another command of the package has been running for 5 minutes; nothing was changed" >&2
  exit 15
fi
for package in /opt/reprieve/current /opt/reprieve/previous /opt/reprieve/versions/*; do
  # A removal that was cut off may have left a part.
  if [ -x "$package/remove.sh" ] && [ -r "$package/lib.sh" ]; then
    exec "$package/remove.sh"
  fi
done
# Nothing has been installed yet, or remove.sh came to its last line.
rm -rf /opt/reprieve
