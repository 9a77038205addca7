#!/usr/bin/env bats
# The package's files, without a machine: `bats infra/tests/package.bats`. Needs shellcheck, systemd
# and the right to make namespaces.

bats_require_minimum_version 1.5.0

setup() {
  package=$(cd "$BATS_TEST_DIRNAME/../package" && pwd)
  folder=$BATS_TEST_TMPDIR/download
  mkdir -p "$folder"
}

# Makes an archive whose scripts say that they ran.
pack() {
  local version=$1 tree=$BATS_TEST_TMPDIR/tree
  rm -rf "$tree"
  mkdir -p "$tree/bin"
  # shellcheck disable=SC2016
  printf '#!/bin/sh\necho "$0 ran"\n' | tee "$tree/install.sh" "$tree/update.sh" >/dev/null
  head -c 300000 /dev/urandom >"$tree/bin/worker"
  chmod 755 "$tree"/*.sh "$tree/bin/worker"
  (
    cd "$tree" || exit
    printf '{\n  "name": "reprieve-worker",\n  "version": "%s",\n  "files": [\n' "$version"
    find . -type f ! -name manifest.json -printf '%P\n' | sort | while read -r file; do
      printf '    {"path": "%s", "mode": "0755", "size": 1, "sha256": "%s"},\n' "$file" \
        "$(sha256sum "$file" | cut -d' ' -f1)"
    done
    printf '    {}\n  ]\n}\n'
  ) >"$BATS_TEST_TMPDIR/manifest.json"
  mv "$BATS_TEST_TMPDIR/manifest.json" "$tree/"
  tar -C "$tree" -czf "$folder/worker.tgz" .
}

# Runs a command of the application as root with an empty /opt and /run, and lists /opt then.
# `$before` runs there first, and the size of /opt is `$size`.
agent() {
  local shell=$1 command=$2 namespaces=(--mount)
  [ "$(id -u)" = 0 ] || namespaces+=(--user --map-root-user)
  # shellcheck disable=SC2016
  run unshare "${namespaces[@]}" sh -c '
    mount -t tmpfs -o "size=$4" tmpfs /opt && mount -t tmpfs tmpfs /run && cd "$1" || exit 99
    eval "$5"
    umask 077
    "$2" -c "$(cat "$3")"
    code=$?
    find /opt -mindepth 1 | sort
    exit $code
  ' sh "$folder" "$shell" "$package/commands/$command.sh" "${size:-10m}" "${before:-}"
}

@test "shellcheck finds nothing" {
  cd "$package"
  shellcheck --external-sources ./*.sh commands/*.sh
  # Each test is a subshell to shellcheck.
  shellcheck --exclude=SC2030,SC2031 "$BATS_TEST_FILENAME"
}

@test "the scripts are correct for dash and for bash" {
  for script in "$package"/*.sh "$package"/commands/*.sh; do
    dash -n "$script"
    bash --posix -n "$script"
  done
}

@test "a command has at most 4,096 characters, and no byte that is not ASCII" {
  for command in "$package"/commands/*.sh; do
    [ "$(wc -c <"$command")" -le 4096 ]
    run ! grep -nP '[^\x00-\x7f]' "$command"
  done
}

@test "the commands to install and to update are the same but for the script" {
  run diff "$package/commands/install.sh" "$package/commands/update.sh"
  [ "$(grep -c '^>' <<<"$output")" -eq 3 ]
  grep -qx '> script=update.sh' <<<"$output"
  diff <(sed 's/install\.sh/update.sh/; s/install command/update command/' "$package/commands/install.sh") \
    "$package/commands/update.sh"
}

# Makes a root with the units and the program that they start.
units() {
  root=$BATS_TEST_TMPDIR/root
  mkdir -p "$root/etc/systemd/system" "$root/opt/reprieve/current/bin" "$root/lib/systemd"
  cp "$package"/systemd/* "$root/etc/systemd/system/"
  cp -r /lib/systemd/system "$root/lib/systemd/"
  printf '#!/bin/sh\n' >"$root/opt/reprieve/current/bin/worker"
  chmod 755 "$root/opt/reprieve/current/bin/worker"
}

@test "systemd understands all of the units" {
  units
  for unit in reprieve-worker.service reprieve-worker@1.service; do
    # An unknown key is a line of output, and no failure.
    run systemd-analyze --root="$root" --man=no verify "$unit"
    [ "$status" -eq 0 ]
    [ -z "$output" ]
  done
}

@test "an unknown key of a unit would be noticed" {
  units
  echo WatchdogSecs=30 >>"$root/etc/systemd/system/reprieve-worker.service"
  run systemd-analyze --root="$root" --man=no verify reprieve-worker.service
  [ -n "$output" ]
}

@test "the sandbox's exposure is at most 2.0" {
  units
  for unit in reprieve-worker.service reprieve-worker@1.service; do
    run systemd-analyze --root="$root" --offline=true --threshold=20 --no-pager security "$unit"
    [ "$status" -eq 0 ]
    score=$(sed -n "s/.*Overall exposure level for .*: \([0-9.]*\) .*/\1/p" <<<"$output")
    grep -q "$score offline" "$package/README.md"
  done
}

@test "the units say what the templates and the documentation rely on" {
  for unit in reprieve-worker.service reprieve-worker@.service; do
    for line in Type=notify WatchdogSec=30 Restart=always RestartSec=2 TimeoutStopSec=25 KillMode=mixed \
      StartLimitIntervalSec=0 User=reprieve EnvironmentFile=/etc/reprieve/worker.env RuntimeDirectory=reprieve \
      RuntimeDirectoryPreserve=yes SyslogIdentifier=reprieve-worker SyslogFacility=local3 \
      WantedBy=multi-user.target ExecStart=/opt/reprieve/current/bin/worker; do
      grep -qx -- "$line" "$package/systemd/$unit"
    done
  done
}

@test "the template is the unit, with a state and settings for each instance" {
  diff <(sed -e 's/ %i$//' -e 's|/%i$||' -e '/^# For one instance/d' -e '/worker@%i\.env$/d' \
    "$package/systemd/reprieve-worker@.service") "$package/systemd/reprieve-worker.service"
  [ "$(grep -c %i "$package/systemd/reprieve-worker@.service")" -eq 4 ]
}

@test "a whole download is unpacked, and its script is called" {
  pack 1.2.3
  for shell in /bin/sh /bin/bash; do
    for command in install update; do
      agent "$shell" "$command"
      [ "$status" -eq 0 ]
      [ "${lines[0]}" = "/opt/reprieve/versions/1.2.3/$command.sh ran" ]
      grep -qx /opt/reprieve/versions/1.2.3/bin/worker <<<"$output"
      run ! grep -q staging <<<"$output"
    done
  done
}

@test "others than root can read what is unpacked, whatever the agent's umask is" {
  pack 1.2.3
  before='trap "stat -c %a /opt/reprieve /opt/reprieve/versions /opt/reprieve/versions/1.2.3/bin" EXIT'
  agent /bin/sh install
  [ "$(grep -cx 755 <<<"$output")" -eq 3 ]
}

# Checks a refusal: its exit code, one line, and nothing in /opt.
refused() {
  local code=$1 expected=$2
  [ "$status" -eq "$code" ]
  [ "${#lines[@]}" -eq 1 ]
  [[ $output == reprieve-worker:*"$expected"*"; nothing was changed" ]]
}

@test "a missing archive is refused" {
  for command in install update; do
    agent /bin/sh "$command"
    refused 10 "worker.tgz is not in $folder: its download failed; remove the application from this VM"
  done
}

@test "an empty archive is refused" {
  : >"$folder/worker.tgz"
  agent /bin/bash install
  refused 10 "worker.tgz in $folder is empty"
}

@test "a truncated archive is refused, wherever it ends" {
  pack 1.2.3
  mv "$folder/worker.tgz" "$folder/whole"
  size=$(stat -c %s "$folder/whole")
  for length in 1 10 100 $((size / 2)) $((size - 1)); do
    head -c "$length" "$folder/whole" >"$folder/worker.tgz"
    size=10m agent /bin/sh install
    refused 10 "is truncated or damaged"
  done
}

@test "an archive with a changed byte is refused" {
  pack 1.2.3
  printf 'X' | dd of="$folder/worker.tgz" bs=1 seek=5000 conv=notrunc status=none
  agent /bin/sh install
  refused 10 "is truncated or damaged"
}

@test "an archive that does not match its manifest is refused" {
  pack 1.2.3
  echo 'echo changed' >>"$BATS_TEST_TMPDIR/tree/install.sh"
  tar -C "$BATS_TEST_TMPDIR/tree" -czf "$folder/worker.tgz" .
  agent /bin/sh install
  refused 10 "does not match its own manifest.json"
  rm "$BATS_TEST_TMPDIR/tree/install.sh"
  tar -C "$BATS_TEST_TMPDIR/tree" -czf "$folder/worker.tgz" .
  agent /bin/sh install
  refused 10 "does not match its own manifest.json"
}

@test "an archive without a manifest or a version is refused" {
  pack 1.2.3
  rm "$BATS_TEST_TMPDIR/tree/manifest.json"
  tar -C "$BATS_TEST_TMPDIR/tree" -czf "$folder/worker.tgz" .
  agent /bin/sh install
  refused 10 "does not match its own manifest.json"
  pack ../../etc
  agent /bin/sh install
  refused 10 "names no version"
}

@test "a full disk is refused, and nothing of the archive stays" {
  pack 1.2.3
  size=200k agent /bin/sh install
  refused 10 "can't be unpacked into /opt/reprieve/versions (is the disk full?)"
}

@test "an installed version is not written again, and a damaged one is" {
  pack 1.2.3
  # shellcheck disable=SC2016
  before='/bin/sh -c "$(cat "$3")"; stat -c "before %i" /opt/reprieve/versions/1.2.3/bin/worker
    trap "stat -c \"after %i\" /opt/reprieve/versions/1.2.3/bin/worker" EXIT'
  agent /bin/sh install
  [ "$status" -eq 0 ]
  [ "$(sed -n 's/^before //p' <<<"$output")" = "$(sed -n 's/^after //p' <<<"$output")" ]
  before="$before; : >/opt/reprieve/versions/1.2.3/bin/worker"' ;
    trap "sha256sum /opt/reprieve/versions/1.2.3/bin/worker" EXIT'
  agent /bin/sh install
  grep -q "^$(sha256sum <"$BATS_TEST_TMPDIR/tree/bin/worker" | cut -d' ' -f1)" <<<"$output"
}

@test "a removal without an installation succeeds, and removes what a cut one left" {
  agent /bin/sh remove
  [ "$status" -eq 0 ]
  [ -z "$output" ]
  before='mkdir -p /opt/reprieve/.removed/1.0.0/bin /opt/reprieve/versions/.staging/bin'
  agent /bin/bash remove
  [ "$status" -eq 0 ]
  [ -z "$output" ]
}

# Runs a function of lib.sh with an environment file.
call() {
  printf '%s\n' "$1" >"$BATS_TEST_TMPDIR/worker.env"
  shift
  # shellcheck disable=SC2016
  run dash -c 'set -eu; . "$1"; environment=$2 units=$3; shift 3; "$@"' sh "$package/lib.sh" "$BATS_TEST_TMPDIR/worker.env" \
    "${units-reprieve-worker.service}" "$@"
}

@test "a setting is read as systemd reads it" {
  call $'REPRIEVE_QUEUE=a\n# REPRIEVE_QUEUE=b\nREPRIEVE_QUEUES=c' setting REPRIEVE_QUEUE
  [ "$output" = a ]
  call $'REPRIEVE_QUEUE=a\nREPRIEVE_QUEUE="b c"  ' setting REPRIEVE_QUEUE
  [ "$output" = "b c" ]
  call "REPRIEVE_QUEUE='a=b;c'" setting REPRIEVE_QUEUE
  [ "$output" = "a=b;c" ]
  call "" setting REPRIEVE_QUEUE
  [ -z "$output" ]
}

@test "the units follow from the number of instances" {
  for one in "" REPRIEVE_INSTANCES= REPRIEVE_INSTANCES=1; do
    call "$one" wanted_units
    [ "$output" = reprieve-worker.service ]
  done
  call REPRIEVE_INSTANCES=2 wanted_units
  [ "${lines[*]}" = "reprieve-worker@1.service reprieve-worker@2.service" ]
  for wrong in 0 02 two -1 100 1.5; do
    call "REPRIEVE_INSTANCES=$wrong" wanted_units
    [ "$status" -eq 11 ]
    [[ $output == *"is \"$wrong\", not a number from 1 to 99; no worker was started or stopped" ]]
  done
}

@test "the address of /healthz follows from REPRIEVE_LISTEN" {
  while read -r listen expected; do
    call "REPRIEVE_LISTEN=$listen" health_urls
    [ "$output" = "$expected" ]
  done <<'CASES'
127.0.0.1:9090 http://127.0.0.1:9090/healthz
0.0.0.0:80 http://127.0.0.1:80/healthz
[::]:80 http://[::1]:80/healthz
[::1]:80 http://[::1]:80/healthz
off
CASES
  call "REPRIEVE_LISTEN = 127.0.0.1:9090" health_urls
  [ "$output" = http://127.0.0.1:9090/healthz ]
  call "" health_urls
  [ -z "$output" ]
}

@test "workers with one address are asked once, and an instance at its own" {
  units="reprieve-worker@1.service reprieve-worker@2.service reprieve-worker@3.service"
  call REPRIEVE_LISTEN=127.0.0.1:9090 health_urls
  [ "$output" = http://127.0.0.1:9090/healthz ]
  echo REPRIEVE_LISTEN=127.0.0.1:9092 >"$BATS_TEST_TMPDIR/worker@2.env"
  call REPRIEVE_LISTEN=127.0.0.1:9090 health_urls
  [ "${lines[*]}" = "http://127.0.0.1:9090/healthz http://127.0.0.1:9092/healthz" ]
}
