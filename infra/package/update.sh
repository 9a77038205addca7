#!/bin/sh
# Updates from any other version to the one in this directory: drains the old worker, starts the new
# one, and returns to the old one if the new one is not healthy. A minute after the start of the new
# one, one of them has been found healthy: 40 s, 5 s to stop it, and the old one's start.
#
# /opt/reprieve/rollback names the old version until the new one has been found healthy, so that a
# repetition after a cut knows what worked. An update to a third version returns to the one that ran
# last, if that is healthy.
set -eu
# Set while no worker runs that should: a failure then starts the old version again.
stopped=
here=$(cd "$(dirname "$0")" && pwd -P)
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$here/lib.sh"

main() {
  begin
  units=$(wanted_units)
  old=$(linked rollback)
  if [ -n "$old" ] && [ "$(linked current)" != "$version" ] && await_health 10 "$(restarts_of_life)"; then
    old=
  fi
  if [ -z "$old" ]; then
    old=$(linked current)
    if [ -z "$old" ] || [ "$old" = "$version" ]; then
      # There is nothing to update.
      exec "$here/install.sh"
    fi
  fi
  prepare_machine
  check_worker "$version" "version $(linked current) continues to run"
  link rollback "$old"
  say "updating from version $old to $version: draining the workers"
  stopped=1
  trap restart_old EXIT
  end_at_signals
  stop_units
  switch_to "$version"
  start_units
  stopped=
  if await_health 40; then
    if [ "$old" = "$version" ]; then
      rm -f "$root/rollback"
    else
      mv -fT "$root/rollback" "$root/previous"
    fi
    prune
    say "version $version is healthy; $(linked previous) is kept in $versions"
    return
  fi
  failure=$reason
  show_log
  [ "$old" != "$version" ] || {
    rm -f "$root/rollback"
    fail $E_NOT_HEALTHY "version $version is not healthy ($failure), and there is no other to return to"
  }
  roll_back
}

roll_back() {
  say "version $version is not healthy ($failure): returning to version $old"
  stopped=1
  stop_unhealthy_units
  switch_to "$old"
  start_units
  stopped=
  if await_health 60; then
    rm -f "$root/rollback"
    prune
    fail $E_ROLLED_BACK "version $version is not healthy ($failure); version $old runs again"
  fi
  rm -f "$root/rollback"
  show_log
  fail $E_NOT_HEALTHY "version $version is not healthy ($failure), and version $old, which was started again," \
    "is not healthy either ($reason)"
}

# Starts the old version again when a tool has failed, for example on a full disk, or a signal has
# come, between the stop of the workers and their start. systemd does not: they were stopped.
restart_old() {
  code=$?
  trap - EXIT
  ignore_signals
  if [ -n "$stopped" ] && [ "$code" != 0 ]; then
    set +e
    link current "$old"
    systemctl daemon-reload
    start_units
    printf 'reprieve-worker: the update to version %s %s. Version %s was started again\n' \
      "$version" "$(why "$code")" "$(linked current)" >&2
    record err ERROR "the update to version $version failed; version $(linked current) was started again"
  fi
  exit "$code"
}

why() {
  case $1 in
    129 | 130 | 143) echo "was stopped by signal $(($1 - 128))" ;;
    *) echo "failed; the reason is above" ;;
  esac
}

# A function, so that the shell has read all of this before its file may be replaced.
main
