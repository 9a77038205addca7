#!/bin/sh
# The update command: checks ./worker.tgz, unpacks it below /opt/reprieve/versions and calls the
# update.sh in it. A shell gets this text as its command, as root, in the download folder. It runs
# even if the download failed, so it trusts no file.
set -eu
PATH=/usr/sbin:/usr/bin:/sbin:/bin
export PATH
umask 022
archive=worker.tgz
versions=/opt/reprieve/versions
staging=$versions/.staging
script=update.sh

# Reports why nothing was changed, and exits.
refuse() {
  code=$1
  shift
  if [ -n "${locked-}" ]; then
    rm -rf "$staging"
    rmdir "$versions" /opt/reprieve 2>/dev/null || :
  fi
  printf 'reprieve-worker: %s; nothing was changed\n' "$*" >&2
  exit "$code"
}

# Prints the files of the manifest in a directory, as sha256sum reads them.
sums() {
  sed -n 's/^ *{"path": "\([^"]*\)".*"sha256": "\([0-9a-f]\{64\}\)"}.*/\2  \1/p' "$1/manifest.json"
}

# Whether a directory has all files of its manifest, unchanged.
is_whole() {
  [ -s "$1/manifest.json" ] && sums "$1" | (cd "$1" && sha256sum --check --strict --status - 2>/dev/null)
}

[ "$(id -u)" = 0 ] || refuse 11 "this needs root"
for tool in flock gzip sed sha256sum systemctl tar; do
  command -v "$tool" >/dev/null || refuse 11 "this machine has no $tool"
done
again="remove the application from this VM and add it again"
[ -e "$archive" ] || refuse 10 "$archive is not in $PWD: its download failed; $again"
[ -s "$archive" ] || refuse 10 "$archive in $PWD is empty: its download failed; $again"
gzip -t "$archive" 2>/dev/null || refuse 10 "$archive in $PWD is truncated or damaged; $again"

# Not in the files' own folders, which appear and disappear.
exec 9>/run/reprieve-package.lock
flock -w 300 9 || refuse 15 "another command of the package has been running for 5 minutes"
locked=yes

mkdir -p "$versions"
rm -rf "$staging"
mkdir "$staging"
tar -xzf "$archive" -C "$staging" --no-same-owner 2>/dev/null ||
  refuse 10 "$archive in $PWD can't be unpacked into $versions (is the disk full?)"
is_whole "$staging" || refuse 10 "$archive in $PWD does not match its own manifest.json: build it again"
version=$(sed -n 's/^ *"version": "\([0-9.]*\)",$/\1/p' "$staging/manifest.json")
case $version in
  *.*.*) ;;
  *) refuse 10 "$archive in $PWD names no version in its manifest.json: build it again" ;;
esac
# A power loss must not leave files that have their names and not their content.
sync -f "$staging"

target=$versions/$version
if ! [ -e "$target" ]; then
  mv "$staging" "$target"
elif ! cmp -s "$staging/manifest.json" "$target/manifest.json" || ! is_whole "$target"; then
  # This version may be running: file by file, so that it can be started at any moment.
  (cd "$staging" && find . -type f) | while read -r file; do
    mkdir -p "$target/${file%/*}"
    mv -f "$staging/$file" "$target/$file"
  done
fi
rm -rf "$staging"
# Whoever changed a mode has changed no content.
sed -n 's/^ *{"path": "\([^"]*\)", "mode": "\([0-7]*\)".*/\2 \1/p' "$target/manifest.json" |
  while read -r mode file; do chmod "$mode" "$target/$file"; done
exec "$target/$script"
