# shellcheck shell=bash
# The scripts that read this file use these.
# shellcheck disable=SC2034
# Shared by preflight, deploy, update and destroy: their settings, calls of az, waiting, and publishing a package.
#
# Every script can be cut at any line and run again. Nothing is remembered on this machine: each run asks Azure
# what exists, and does the rest. All changes are made by calls that have the same result when they are repeated.

# macOS comes with version 3.2 of 2007. The first with all that is used here is of 2016.
if ((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] < 404)); then
  printf '%s: This is bash %s, and 4.4 is the oldest; install a newer one, by "brew install bash" on macOS.\n' \
    "${0##*/}" "$BASH_VERSION" >&2
  exit 1
fi

infra=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
root=$(dirname "$infra")
script=$(basename "$0")
started_in=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The process group of the call of az that is under way.
calling=
stopped_by() {
  trap '' INT TERM HUP
  [[ -z $calling ]] || kill -TERM -- "-$calling" 2>/dev/null || true
  say "Stopped by SIG$1. What was begun in Azure goes on; run infra/$script again."
  exit "$2"
}
trap 'stopped_by HUP 129' HUP
trap 'stopped_by INT 130' INT
trap 'stopped_by TERM 143' TERM

# An extension that az would install, or a question that it would ask, must not stop a script that nobody watches.
export AZURE_EXTENSION_USE_DYNAMIC_INSTALL=no AZURE_CORE_DISABLE_CONFIRM_PROMPT=1

presets='steady steady-fleet elastic balanced swap'
application=reprieve-worker
container=packages

# ----------------------------------------------------------------- messages

# A trap's messages go where those of the script do, whatever it interrupts.
exec {said}>&2
say() {
  printf '%s: %s\n' "$script" "$*" >&"$said"
}

fail() {
  say "$*"
  exit 1
}

misuse() {
  say "$* See infra/$script --help."
  exit 2
}

# Prints the comment at the top of the script.
usage() {
  sed -n '2,/^$/{s/^# \{0,1\}//;p}' "$0"
}

# Whether a flag has a value, before `name=$2`.
valued() {
  [[ $# -ge 2 && -n $2 && $2 != --* ]] || misuse "$1 needs a value."
}

# ----------------------------------------------------------------- az

# Reads answers of az, which are JSON.
answer() {
  python3 -IS "$infra/answers.py" "$@"
}

# How long one call of az may take, in seconds. What Azure does meanwhile goes on when it is cut. The longest are
# deployments, deletions and uploads over a slow line; a call of another kind has an answer or an error in minutes.
limit_of() {
  case "$1 ${2:-} ${3:-}" in
  'deployment group create' | 'storage blob '* | 'group delete '* | 'resource delete '* | 'provider register '*)
    echo 10800
    ;;
  *) echo 600 ;;
  esac
}

# Puts a call of az, in the subscription that the script has named, into the list `call`, and its limit into `limit`.
prepare() {
  call=()
  limit=${REPRIEVE_AZ_TIMEOUT:-$(limit_of "$@")}
  # An az that hangs is stopped, where the machine can: macOS has no timeout.
  ! command -v timeout >/dev/null || call=(timeout --kill-after 10 "$limit")
  call+=(az "$@" --only-show-errors)
  case $1 in
  # These ask no subscription, or name one in their URL.
  version | bicep | ad | rest) ;;
  *) [[ -z $subscription ]] || call+=(--subscription "$subscription") ;;
  esac
}

# Runs the prepared call, whose output goes to the given files, or with the script's. Debian's az is a shell that starts
# Python and waits for it, so the call is a process group of its own, which ends as a whole: with its limit, and with
# the script, whose `wait` a signal stops at once. bash itself says when a call was killed; the script has a sentence.
perform() {
  local code=0
  set -m
  if [[ $# -gt 0 ]]; then
    "${call[@]}" </dev/null >"$1" 2>"$2" {said}>&- &
  else
    "${call[@]}" </dev/null {said}>&- &
  fi
  calling=$!
  set +m
  wait "$calling" 2>/dev/null || code=$?
  # What the call has started and left, whatever it does at SIGTERM.
  kill -KILL -- "-$calling" 2>/dev/null || true
  calling=
  return "$code"
}

# Runs az; its answer goes to a file.
azure() {
  local file=$1 code=0 begun=$SECONDS
  shift
  prepare "$@" --output json
  perform "$file" "$work/error" || code=$?
  # az itself returns 1 to 3; 137 is SIGKILL, of its limit or of a machine without memory.
  if ((code == 124 || code == 137 && SECONDS - begun >= limit)); then
    printf 'az gave no answer within %d seconds.\n' "$limit" >"$work/error"
  elif ((code > 128)); then
    printf 'az was killed by signal %d.\n' $((code - 128)) >"$work/error"
  fi
  return "$code"
}

# The first of az's sentences, without the rest of its error message.
reason() {
  answer reason <"$work/error"
}

# Runs az, and fails with a sentence if that fails.
ask() {
  local what=$1
  local file=$2
  shift
  azure "$@" || fail "$what failed: $(reason) Mend that, and run infra/$script again."
  answer valid <"$file" >/dev/null || fail "$what failed: az's answer can't be read, and begins with" \
    "\"$(head -c 100 "$file" | head -n 1)\". Mend that, and run infra/$script again."
}

# An answer that has no known shape is no answer, and none that all is well.
misread() {
  fail "What az says about $1 can't be read; run infra/$script again, and report it if that does not help."
}

denied() {
  grep -qE 'required permissions needed|blocked by network rules|Authorization(PermissionMismatch|Failure)' \
    "$work/error"
}

# Waits, longer each time, at most a minute. Fails when the limit in seconds is exceeded.
# What the calls of az take counts, too.
waited=0
pause=5
began=$SECONDS
wait_below() {
  ((waited + pause <= $1 && SECONDS - began + pause <= $1)) || return 1
  # A signal stops a wait at once, and a pause when it has ended.
  sleep "$pause" >/dev/null 2>&1 {said}>&- &
  wait $!
  waited=$((waited + pause))
  pause=$((pause * 2 > 60 ? 60 : pause * 2))
}

from_now() {
  waited=0
  pause=5
  began=$SECONDS
}

# ----------------------------------------------------------------- settings

# What all scripts have in common; flags replace it.
name=${REPRIEVE_NAME:-demo}
# azd sets it. Without it, the one that az is signed in to when the script begins.
subscription=${AZURE_SUBSCRIPTION_ID:-}
group=${AZURE_RESOURCE_GROUP:-}
location=${AZURE_LOCATION:-}
preset=${REPRIEVE_PRESET:-}
version=${REPRIEVE_APPLICATION_VERSION:-}
package=${REPRIEVE_PACKAGE:-}
program=${REPRIEVE_BIN:-}
cli=${REPRIEVE_CLI:-}
ssh_key=
allow_large=

# Azure writes regions in lower case and without spaces.
region_name() {
  tr -d ' ' <<<"${1,,}"
}

check_settings() {
  [[ $name =~ ^[a-z0-9][a-z0-9-]{0,7}[a-z0-9]$ && $name != *--* ]] ||
    misuse "--name has 2 to 9 lower-case letters, digits and single hyphens inside, and \"$name\" does not."
  [[ -z $ssh_key || -f $ssh_key && -r $ssh_key ]] || misuse "The public key $ssh_key can't be read."
  group=${group:-rg-reprieve-$name}
  location=$(region_name "$location")
  [[ -z $preset || " $presets " == *" $preset "* ]] || misuse "--preset is one of: ${presets// /, }."
  [[ -z $version || $version =~ ^(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})$ ]] ||
    misuse "--version is Major.Minor.Patch, such as 1.4.0, and \"$version\" is not."
  [[ -z $program || -z $package ]] || misuse "Give either --bin, to make a package, or --package, to take one."
  # The template takes them apart at commas.
  [[ -z ${REPRIEVE_CONTACT_EMAILS:-} ]] || export REPRIEVE_CONTACT_EMAILS=${REPRIEVE_CONTACT_EMAILS// /}
  export REPRIEVE_NAME=$name AZURE_ENV_NAME=${AZURE_ENV_NAME:-$name}
}

signed_in() {
  command -v az >/dev/null ||
    fail "The Azure CLI is not installed; install it from https://aka.ms/azure-cli, and run infra/$script again."
  command -v python3 >/dev/null || fail "Python 3 is not installed; install it, and run infra/$script again."
  ask 'Asking who is signed in' "$work/account" account show
  { read -r subscription && read -r subscription_name && read -r user_type && read -r user_name; } < <(
    answer fields id name user.type user.name <"$work/account"
  ) || fail "What az says about who is signed in can't be read; see \"az account show\"."
  say "Subscription: $subscription_name ($subscription)."
}

group_exists() {
  ask "Looking for the resource group $group" "$work/exists" group exists --name "$group"
  case $(<"$work/exists") in
  true) return 0 ;;
  false) return 1 ;;
  *) fail "Looking for the resource group $group failed: az says neither true nor false. Run infra/$script again." ;;
  esac
}

# ----------------------------------------------------------------- what exists

# Reads what the deployment has, into: account, gallery, former_preset, former_version.
read_deployment() {
  ask "Listing the resources of $group" "$work/resources" resource list --resource-group "$group"
  answer deployment "$name" <"$work/resources" >"$work/deployment"
  { read -r account && read -r gallery && read -r former_preset && read -r former_version; } <"$work/deployment" ||
    fail "The list of resources of $group can't be read; see \"az resource list -g $group\"."
}

# A deployment that was started goes on in Azure when its script is cut, and a second one of its name is refused.
wait_for_deployments() {
  local running
  from_now
  while true; do
    ask "Listing the deployments of $group" "$work/deployments" deployment group list --resource-group "$group"
    running=$(answer running "reprieve-$name-" <"$work/deployments") || misread "the deployments of $group"
    [[ -n $running ]] || return 0
    say "Deployment $running is running; waiting until it ends."
    wait_below 7200 || fail "Deployment $running has been running for two hours; look at it in the portal, cancel it" \
      "by \"az deployment group cancel -g $group -n $running\", and run infra/$script again."
  done
}

list_sets() {
  ask "Reading the sizes of the sets in $group" "$work/sets" vmss list --resource-group "$group"
}

# A deployment leaves alone what it does not name. The set of a region that is named no more would go on starting VMs,
# and the account would no longer let them in.
refuse_stranded() {
  local sets
  sets=$(answer stranded "$name" "$infra/fleets.json" "$location" <"$work/resources") || misread "the resources of $group"
  [[ -z $sets ]] || fail "infra/fleets.json has no longer the region of $sets; put it back, or delete the fleet first by" \
    "\"infra/destroy --keep-data --name $name --group $group\", which keeps the jobs, and run infra/$script again."
}

# Autoscale changes the number of instances between a deployment and the next. A template has to name a number, so
# this one is read as late as can be. Between here and the deployment a set may still grow; autoscale grows it again.
read_capacities() {
  list_sets
  REPRIEVE_CURRENT_CAPACITIES=$(answer capacities <"$work/sets") || misread "the sizes of the sets in $group"
  export REPRIEVE_CURRENT_CAPACITIES
}

# The key that new VMs get: the given one, else the one that the sets have, else one of this user.
choose_ssh_key() {
  local file
  if [[ -n $ssh_key ]]; then
    REPRIEVE_SSH_PUBLIC_KEY=$(tr -d '\r' <"$ssh_key")
  elif [[ -z ${REPRIEVE_SSH_PUBLIC_KEY:-} ]]; then
    REPRIEVE_SSH_PUBLIC_KEY=$(answer ssh-key "$name" <"$work/sets") || misread "the keys of the sets in $group"
    if [[ -z $REPRIEVE_SSH_PUBLIC_KEY && $former_preset == steady-fleet ]]; then
      ask "Reading the Compute Fleets of $group" "$work/fleets" rest --method get --url \
        "/subscriptions/$subscription/resourceGroups/$group/providers/Microsoft.AzureFleet/fleets?api-version=2024-11-01"
      REPRIEVE_SSH_PUBLIC_KEY=$(answer ssh-key-of-fleet "$name" <"$work/fleets") ||
        misread "the keys of the Compute Fleets of $group"
    fi
    for file in "${HOME:-/}"/.ssh/id_{ed25519,rsa}.pub; do
      [[ -n $REPRIEVE_SSH_PUBLIC_KEY || ! -r $file ]] || REPRIEVE_SSH_PUBLIC_KEY=$(tr -d '\r' <"$file")
    done
  fi
  # VMs take no other kinds. https://learn.microsoft.com/azure/virtual-machines/linux/mac-create-ssh-keys
  [[ ${REPRIEVE_SSH_PUBLIC_KEY:-} != *$'\n'* &&
    ${REPRIEVE_SSH_PUBLIC_KEY:-} =~ ^ssh-(ed25519|rsa)\ AAAA[A-Za-z0-9+/]+={0,3}(\ |$) ]] ||
    fail "No public SSH key of the kind ed25519 or rsa was found; make one by \"ssh-keygen -t ed25519\", or give one in REPRIEVE_SSH_PUBLIC_KEY."
  export REPRIEVE_SSH_PUBLIC_KEY
}

# Alerts keep their addresses: a deployment without them would take them away.
keep_contacts() {
  [[ -z ${REPRIEVE_CONTACT_EMAILS:-} ]] || return 0
  ask "Reading who gets the alerts of $group" "$work/contacts" monitor action-group list --resource-group "$group"
  REPRIEVE_CONTACT_EMAILS=$(answer contacts "$name" <"$work/contacts") || misread "who gets the alerts of $group"
  export REPRIEVE_CONTACT_EMAILS
}

# The first day of a budget can't be changed, and the template's own is this month's.
keep_budget() {
  [[ -n ${REPRIEVE_CONTACT_EMAILS:-} ]] || return 0
  ask "Reading the budget of $group" "$work/budgets" rest --method get --url \
    "/subscriptions/$subscription/resourceGroups/$group/providers/Microsoft.Consumption/budgets?api-version=2024-08-01"
  REPRIEVE_BUDGET_START=$(answer budget-start "$name" <"$work/budgets") || misread "the budget of $group"
  export REPRIEVE_BUDGET_START
}

# ----------------------------------------------------------------- the package

# Makes the package if a program was given, and reads its version and checksum. Without both, `checksum` is empty.
read_package() {
  checksum=
  if [[ -n $program ]]; then
    [[ -f $program && -r $program ]] || fail "The program $program can't be read; build it by \"cargo build --release\" first."
    command -v cargo >/dev/null || fail "cargo is not installed, and --bin needs it; take a package by --package FILE."
    local line
    # It prints the checksum and the path; the same inputs give the same bytes.
    line=$(cd "$root" && cargo xtask package --bin "$(absolute "$program")" \
      ${version:+--version "$version"} ${cli:+--cli "$(absolute "$cli")"} ${allow_large:+--allow-large} | tail -n 1) ||
      fail "The package could not be made; the reason is above."
    package=${line#*  }
  fi
  [[ -n $package ]] || return 0
  [[ -r $package ]] || fail "The package $package can't be read; make it by \"cargo xtask package --bin PROGRAM\"."
  local packed
  packed=$(answer package-version "$package" 2>/dev/null) ||
    fail "$package is not a package of a worker; make one by \"cargo xtask package --bin PROGRAM\"."
  [[ -z $version || $version == "$packed" ]] ||
    fail "$package is version $packed, and --version says $version; make the package again with --version $version."
  version=$packed
  checksum=$(answer checksum "$package")
}

next_version() {
  printf '%s.%d' "${version%.*}" $((${version##*.} + 1))
}

absolute() {
  case $1 in
  /*) printf '%s' "$1" ;;
  *) printf '%s/%s' "$started_in" "$1" ;;
  esac
}

# Uploads the package, unless it is there. A version that is there with other bytes is refused: VMs install a version
# once, and the gallery keeps the bytes that it has copied, so one number would name two programs.
publish() {
  local blob=$application/$version/worker.tgz found
  from_now
  while true; do
    if azure "$work/blob" storage blob show --auth-mode login --account-name "$account" \
      --container-name "$container" --name "$blob"; then
      found=$(answer blob-checksum <"$work/blob")
      if [[ -z $found ]]; then
        # Uploaded by hand, without its checksum.
        ask "Downloading $blob to compare it" "$work/downloaded" storage blob download --auth-mode login \
          --account-name "$account" --container-name "$container" --name "$blob" --file "$work/worker.tgz" --no-progress
        found=$(answer checksum "$work/worker.tgz")
      fi
      [[ $found == "$checksum" ]] ||
        fail "Version $version is published with other bytes, and a version never changes; raise the version, such as" \
          "--version $(next_version)."
      say "Version $version is uploaded already."
      return 0
    elif grep -q 'BlobNotFound\|specified blob does not exist' "$work/error"; then
      refuse_lost_package
      # Creates or fails, and never overwrites. A blob appears whole: an upload that is cut leaves none.
      if azure "$work/uploaded" storage blob upload --auth-mode login --account-name "$account" \
        --container-name "$container" --name "$blob" --file "$package" --overwrite false --no-progress \
        --metadata "sha256=$checksum" "version=$version"; then
        say "Uploaded version $version."
        return 0
      elif grep -q 'BlobAlreadyExists\|specified blob already exists' "$work/error"; then
        # Someone else was faster: compare.
        continue
      fi
    fi
    if grep -q 'blocked by network rules' "$work/error" && [[ -z ${REPRIEVE_ALLOWED_IPS:-} ]]; then
      fail "Storage does not let this machine in; name its public address by \"infra/deploy --allow-ip ADDRESS\"," \
        "and run infra/$script again."
    fi
    denied || fail "Uploading version $version to $account failed: $(reason) Run infra/$script again."
    # A role is known to storage some minutes after its assignment, and so is a rule of its firewall.
    ((waited)) || say "Storage does not accept this upload yet; a new role takes some minutes to be known."
    wait_below 900 || fail "Storage still refuses the upload after 15 minutes: $(reason)" \
      "Check that your address is in REPRIEVE_ALLOWED_IPS (now \"${REPRIEVE_ALLOWED_IPS:-}\") and that you have the" \
      "role Storage Blob Data Contributor on the container $container of $account, and run infra/$script again."
  done
}

# A published version whose package is gone can't be compared with this one.
refuse_lost_package() {
  [[ -n $gallery ]] || return 0
  versions_published
  ! is_published ||
    fail "Version $version is published, and its package is no longer in $account to be compared; raise the version," \
      "such as --version $(next_version)."
}

# Whether the version is among the published ones.
is_published() {
  local code=0
  answer has-version "$version" <"$work/versions" || code=$?
  ((code < 2)) || misread "the published versions"
  return "$code"
}

versions_published() {
  ask "Listing the published versions" "$work/versions" sig gallery-application version list \
    --resource-group "$group" --gallery-name "$gallery" --application-name "$application"
}

# ----------------------------------------------------------------- the stages

# A deployment's name has the version in it, so that their list tells what was deployed before.
fleet_deployment() {
  printf 'reprieve-%s-fleet-%s' "$name" "$1"
}

# Deploys stage 2 with a version.
deploy_fleet() {
  export REPRIEVE_APPLICATION_VERSION=$1
  read_capacities
  say "Deploying the fleet: preset $preset, version $1. This takes minutes."
  ask "Deploying the fleet" "$work/fleet" deployment group create --resource-group "$group" \
    --name "$(fleet_deployment "$1")" --parameters "$infra/presets/$preset.bicepparam"
}
