#!/bin/sh
# Installs the version in this directory: user, units, /opt/reprieve/current. Starts the worker and
# does not wait for it, except to forget the way back of an update that was cut off.
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
  ignore_signals
  switch_to "$version"
  start_units
  trap - HUP INT TERM
  forget_rollback
  say "version $version is installed and starts; see \`journalctl -u 'reprieve-worker*'\`"
}

# Forgets the way back of an update that was cut off, once this version is healthy. Only then this waits.
forget_rollback() {
  [ -L "$root/rollback" ] || return 0
  if [ -n "$(linked rollback)" ] && ! await_health 20; then
    say "version $version is not healthy yet ($reason); an update would return to version $(linked rollback)"
    return 0
  fi
  rm -f "$root/rollback"
}

# A function, so that the shell has read all of this before its file may be replaced.
main
