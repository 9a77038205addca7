#!/bin/sh
# Installs the version in this directory: user, units, /opt/reprieve/current. Starts the worker and
# does not wait for it.
set -eu
here=$(cd "$(dirname "$0")" && pwd -P)
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$here/lib.sh"

main() {
  begin
  units=$(wanted_units)
  installed=$(linked current)
  if [ -n "$installed" ] && [ "$installed" != "$version" ]; then
    # Then an update drains it, and returns to it if this version is not healthy.
    exec "$here/update.sh"
  fi
  prepare_machine
  check_worker "$version" "nothing was started"
  switch_to "$version"
  start_units
  say "version $version is installed and starts; see \`journalctl -u 'reprieve-worker*'\`"
}

# A function, so that the shell has read all of this before its file may be replaced.
main
