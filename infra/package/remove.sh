#!/bin/sh
# Drains and removes the worker with its units, its user and its files. /etc/reprieve stays: cloud-init
# wrote it, once in the VM's life, and an application that is added again needs it.
set -eu
here=$(cd "$(dirname "$0")" && pwd -P)
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$here/lib.sh"

main() {
  begin
  say "removing the worker: draining it"
  units=$(running_units)
  trap restart_units EXIT
  end_at_signals
  stop_units
  # The rest takes a moment, and nothing of it is of use alone.
  ignore_signals
  trap - EXIT
  for unit in $(known_units); do
    systemctl --quiet disable "$unit" 2>/dev/null || :
    systemctl reset-failed "$unit" 2>/dev/null || :
  done
  for unit in reprieve-worker.service reprieve-worker@.service; do
    rm -f "$unit_directory/$unit" "$unit_directory/.$unit.new"
  done
  systemctl daemon-reload
  rm -rf /run/reprieve
  if has_store; then
    say "$state stays: it has the jobs of an embedded store"
  elif grep -q " $state/" /proc/self/mountinfo; then
    say "$state stays: something is mounted in it"
  else
    # A mount stays, empty.
    rm -rf --one-file-system "$state" 2>/dev/null || [ -z "$(ls -A "$state")" ]
    remove_user
  fi
  say "the worker is removed; $environment stays for the next installation"
  # The command takes what is left without a version for the rest of a removal.
  rm -rf "$root/.removed"
  rm -f "$root/current" "$root/previous" "$root/rollback"
  mv "$versions" "$root/.removed"
  rm -rf "$root"
}

# Prints the units whose worker runs or starts.
running_units() {
  for unit in $(known_units); do
    case $(systemctl show --property=ActiveState --value "$unit") in
      active | activating | reloading) echo "$unit" ;;
    esac
  done
}

# Starts the workers again when a signal has come during their drain: nothing else was changed.
restart_units() {
  code=$?
  trap - EXIT
  ignore_signals
  [ -z "$units" ] || {
    # shellcheck disable=SC2086
    systemctl start --no-block $units || :
    printf 'reprieve-worker: the removal was stopped, and the worker was started again; remove it again\n' >&2
    record err ERROR "the removal was stopped, and the worker was started again"
  }
  exit "$code"
}

# Whether the jobs of an embedded store are in the state directory: a file of SQLite, whatever its name
# and whoever named it.
has_store() {
  [ -n "$(find "$state" -type f -exec sh -c \
    'for file; do head -c 15 "$file" | grep -q "^SQLite format 3" && echo "$file"; done' sh {} + 2>/dev/null |
    head -n 1)" ]
}

# Removes the user and the group that prepare_machine has made, and none that was there before.
remove_user() {
  ! [ -e "$environment" ] || chown root:root "$environment"
  ! [ -d "${environment%/*}" ] || chown root:root "${environment%/*}"
  case $(getent passwd "$user" | cut -d: -f5) in
    '' | "Reprieve worker") ;;
    *) return 0 ;;
  esac
  ! getent passwd "$user" >/dev/null || userdel "$user" 2>/dev/null || :
  ! getent group "$user" >/dev/null || groupdel "$user" 2>/dev/null || :
}

# A function, so that the shell has read all of this before its file is removed.
main
