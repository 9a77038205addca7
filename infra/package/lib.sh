# shellcheck shell=sh
# Functions of install.sh, update.sh and remove.sh. Each can be cut off at any line and run again.
# `test -ef` is missing from POSIX before 2024, and there in dash, bash and busybox.
# shellcheck disable=SC3013

PATH=/usr/sbin:/usr/bin:/sbin:/bin
export PATH
umask 022

root=/opt/reprieve
versions=$root/versions
unit_directory=/etc/systemd/system
environment=/etc/reprieve/worker.env
state=/var/lib/reprieve
user=reprieve
# The units of the workers that the settings ask for; the scripts that start some set it.
units=

# Exit codes; 10 is the commands' own, for a download that is not whole. The agent shows them in
# the extension's status: "terminated with exit status=13".
# shellcheck disable=SC2034
{
  E_MACHINE=11
  E_WORKER=12
  E_ROLLED_BACK=13
  E_NOT_HEALTHY=14
  E_LOCKED=15
}

# Reports progress, also to the log that the worker's lines go to.
say() {
  printf 'reprieve-worker: %s\n' "$*"
  record info INFO "$*"
}

# Reports a failure in one sentence, and exits with the code.
fail() {
  code=$1
  shift
  printf 'reprieve-worker: %s\n' "$*" >&2
  record err ERROR "$*"
  exit "$code"
}

record() {
  command -v logger >/dev/null || return 0
  message=$(printf '%s' "$3" | tr '\001-\037' ' ' | sed 's/[\\"]/\\&/g')
  logger --priority "local3.$1" --tag reprieve-package -- \
    "{\"level\":\"$2\",\"message\":\"$message\",\"target\":\"reprieve_package\"}" 2>/dev/null || :
}

# Checks the machine, waits for other commands of the package, and sets `version`.
begin() {
  [ "$(id -u)" = 0 ] || fail $E_MACHINE "this needs root; nothing was changed"
  [ -d /run/systemd/system ] || fail $E_MACHINE "systemd does not run here; nothing was changed"
  # A command of the VM Application has the lock already, and passes it on as descriptor 9.
  if ! [ /proc/self/fd/9 -ef /run/reprieve-package.lock ]; then
    exec 9>/run/reprieve-package.lock
  fi
  flock -w 300 9 ||
    fail $E_LOCKED "another command of the package has been running for 5 minutes; nothing was changed"
  # shellcheck disable=SC2034,SC2154 # The scripts set `here`, and read `version`.
  version=${here##*/}
}

# Prints a setting of an environment file, the worker's or another, as systemd reads it: the last line counts.
setting() {
  [ -r "${2:-$environment}" ] || return 0
  sed -n "s/^[[:space:]]*$1[[:space:]]*=[[:space:]]*//p" "${2:-$environment}" | tail -n 1 |
    sed -e 's/[[:space:]]*$//' -e "s/^[\"']//" -e "s/[\"']\$//"
}

# Prints the units that run the worker here: one, or an instance each.
wanted_units() {
  instances=$(setting REPRIEVE_INSTANCES)
  case ${instances:=1} in
    *[!0-9]* | 0* | ???*)
      fail $E_MACHINE "REPRIEVE_INSTANCES in $environment is \"$instances\", not a number from 1 to 99;" \
        "no worker was started or stopped"
      ;;
  esac
  if [ "$instances" = 1 ]; then
    echo reprieve-worker.service
  else
    seq -f 'reprieve-worker@%g.service' "$instances"
  fi
}

# Prints the units of the worker that systemd knows or will start at the next boot.
known_units() {
  {
    systemctl list-units --all --plain --no-legend 'reprieve-worker.service' 'reprieve-worker@*.service' |
      sed 's/ .*//'
    for link in "$unit_directory"/multi-user.target.wants/reprieve-worker*.service; do
      ! [ -L "$link" ] || echo "${link##*/}"
    done
  } | sort -u
}

# Prints the version that a link in /opt/reprieve names, if its files are there.
linked() {
  name=$(readlink "$root/$1" 2>/dev/null) || return 0
  name=${name##*/}
  ! [ -x "$versions/$name/bin/worker" ] || echo "$name"
}

# Points a link in /opt/reprieve at a version: with one rename, so that it names one at any moment.
link() {
  rm -rf "$root/.$1.new"
  ln -s "versions/$2" "$root/.$1.new"
  mv -fT "$root/.$1.new" "$root/$1"
}

# Makes the worker's user, and lets it read its settings. Their content is cloud-init's.
prepare_machine() {
  getent group "$user" >/dev/null || groupadd --system "$user"
  getent passwd "$user" >/dev/null ||
    useradd --system --gid "$user" --home-dir "$state" --no-create-home --shell /usr/sbin/nologin \
      --comment "Reprieve worker" "$user"
  install -d -m 0750 -o root -g "$user" "${environment%/*}"
  if [ -f "$environment" ]; then
    chown "root:$user" "$environment"
    chmod 0640 "$environment"
  else
    say "$environment does not exist yet: the worker starts when cloud-init has written it"
  fi
}

# Checks that this machine can run a version's worker at all: its processor and its C library.
check_worker() {
  answer=$(cd / && timeout --kill-after 5 20 setpriv --reuid="$user" --regid="$user" --clear-groups \
    "$versions/$1/bin/worker" --version 2>&1 9>&-) && return 0
  fail $E_WORKER "the worker of version $1 can't run on this machine ($(uname -m)):" \
    "\`worker --version\` failed: $(printf '%s' "$answer" | tail -n 1)${2:+; $2}"
}

# Makes a version the one that systemd runs, now and at each boot. Starts and stops no worker.
switch_to() {
  for unit in reprieve-worker.service reprieve-worker@.service; do
    install -m 0644 "$versions/$1/systemd/$unit" "$unit_directory/.$unit.new"
    mv -f "$unit_directory/.$unit.new" "$unit_directory/$unit"
  done
  link current "$1"
  systemctl daemon-reload
  # shellcheck disable=SC2086
  systemctl --quiet enable $units
}

# Stops the workers: they save and release their jobs, and have TimeoutStopSec for it.
stop_units() {
  set --
  for unit in $(known_units); do
    set -- "$@" "$unit"
  done
  [ $# = 0 ] || systemctl stop "$@" 2>/dev/null || :
}

# Stops workers that are not healthy: they get five seconds, because no worker of this VM takes jobs
# meanwhile. The next one releases what they hold.
stop_unhealthy_units() {
  set --
  for unit in $units; do
    set -- "$@" "$unit"
  done
  systemctl stop --no-block "$@" || :
  give_up=$(($(uptime_seconds) + 5))
  while systemctl is-active --quiet "$@" || systemctl show --property=ActiveState "$@" | grep -q deactivating; do
    if [ "$(uptime_seconds)" -ge "$give_up" ]; then
      systemctl kill --signal=SIGKILL "$@" 2>/dev/null || :
      break
    fi
    sleep 1
  done
  stop_units
}

# Stops instances that the settings no longer ask for.
retire_units() {
  for unit in $(known_units); do
    case " $(echo "$units" | tr '\n' ' ')" in
      *" $unit "*) ;;
      *) systemctl --quiet disable --now "$unit" 2>/dev/null || : ;;
    esac
  done
}

# Starts the workers, and does not wait until they are ready. A worker of other bytes restarts.
start_units() {
  retire_units
  # All at once: no worker runs meanwhile, and there may be many.
  # shellcheck disable=SC2086
  systemctl reset-failed $units 2>/dev/null || :
  set --
  for unit in $units; do
    pid=$(systemctl show --property=MainPID --value "$unit")
    if [ "${pid:-0}" != 0 ] && ! [ "/proc/$pid/exe" -ef "$root/current/bin/worker" ]; then
      systemctl restart --no-block "$unit"
    else
      set -- "$@" "$unit"
    fi
  done
  [ $# = 0 ] || systemctl start --no-block "$@"
}

# Prints the URLs of /healthz, each once: the workers share one, unless an instance has an address of its own.
health_urls() {
  for unit in $units; do
    instance=${unit#reprieve-worker@}
    address=$(setting REPRIEVE_LISTEN "${environment%.env}@${instance%.service}.env")
    address=${address:-$(setting REPRIEVE_LISTEN)}
    case $address in
      '' | off) ;;
      0.0.0.0:*) echo "http://127.0.0.1:${address##*:}/healthz" ;;
      '[::]:'*) echo "http://[::1]:${address##*:}/healthz" ;;
      *) echo "http://$address/healthz" ;;
    esac
  done | sort -u
}

# Asks /healthz as the Application Health extension does. Python is there where Azure's agent is.
get() {
  if command -v curl >/dev/null; then
    curl --silent --show-error --fail --noproxy '*' --max-time 3 "$1" 2>&1
  else
    python3 -c 'import sys, urllib.request as u
try: print(u.build_opener(u.ProxyHandler({})).open(sys.argv[1], timeout=3).read().decode())
except Exception as error: sys.exit(f"{type(error).__name__}: {error}")' "$1" 2>&1
  fi
}

uptime_seconds() {
  read -r uptime _ </proc/uptime
  echo "${uptime%.*}"
}

# Ends the script at a signal, so that its EXIT trap runs: dash runs none for a signal. A signal that comes while a
# tool runs counts when that has ended.
end_at_signals() {
  trap 'exit 129' HUP
  trap 'exit 130' INT
  trap 'exit 143' TERM
}

# Goes on at a signal: what follows takes a moment, and a machine must not stay in the middle of it.
ignore_signals() {
  trap '' HUP INT TERM
}

# Checks all workers once. Sets `pids` and `reason`.
look() {
  pids=
  reason=
  unready=
  restarts=$(restarts_of_life)
  for unit in $units; do
    pid=$(systemctl show --property=MainPID --value "$unit")
    state_now=$(systemctl show --property=ActiveState --value "$unit")
    pids="$pids $pid"
    if [ "${pid:-0}" = 0 ]; then
      reason="$unit is $state_now and has no process"
    elif [ "$state_now" != active ]; then
      # It may answer all the same, and systemd ends it after TimeoutStartSec.
      unready="$unit is $state_now: it has not reported that it is ready"
    fi
  done
  [ -z "$reason" ] || return 1
  for url in $urls; do
    answer=$(get "$url") || {
      reason="$url does not answer: $(printf '%s' "$answer" | tail -n 1)"
      return 1
    }
    case $answer in
      *'"ApplicationHealthState":"Healthy"'*) ;;
      *)
        reason="$url answers $(printf '%s' "$answer" | head -c 200)"
        return 1
        ;;
    esac
  done
  reason=$unready
  [ -z "$reason" ]
}

# Prints how often systemd has restarted the workers since they were last started by hand.
restarts_of_life() {
  total=0
  for unit in $units; do
    count=$(systemctl show --property=NRestarts --value "$unit")
    total=$((total + ${count:-0}))
  done
  echo $total
}

# Waits until the workers are healthy for five seconds without a restart. Gives up after a number
# of seconds, or when they have exited five times more than a number, and sets `reason`.
await_health() {
  urls=$(health_urls)
  give_up=$(($(uptime_seconds) + $1))
  good=0
  before=
  while [ "$(uptime_seconds)" -lt "$give_up" ]; do
    if look && [ "$pids" = "${before:-$pids}" ]; then
      good=$((good + 1))
    else
      good=0
    fi
    [ $good -lt 6 ] || return 0
    exited=$((restarts - ${2:-0}))
    if [ $exited -ge 5 ]; then
      reason="it exited $exited times"
      return 1
    fi
    before=$pids
    sleep 1
  done
  : "${reason:=it did not stay up for five seconds}"
  reason="after $1 s, $reason"
  return 1
}

# Prints the end of the workers' log, for whoever reads the output of a failed command.
show_log() {
  journalctl --no-pager --output=short-iso --lines=20 --unit='reprieve-worker*' >&2 2>/dev/null || :
}

# Removes all versions but the current and the previous one.
prune() {
  for directory in "$versions"/*; do
    case ${directory##*/} in
      "$(linked current)" | "$(linked previous)" | "$(linked rollback)") ;;
      *) rm -rf "$directory" ;;
    esac
  done
  # Of a removal that was cut off.
  rm -rf "$root/.removed"
}
