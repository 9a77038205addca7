#!/bin/sh
# Makes sure that there is a redis-server: the one on PATH, else Debian's, unpacked into ./redis without installing it.
set -eu

if command -v redis-server >/dev/null || [ -x redis/usr/bin/redis-server ]; then
    exit 0
fi
if ! command -v apt-get >/dev/null || ! command -v dpkg >/dev/null; then
    echo "there is no redis-server on PATH, and no apt-get to fetch one with: install Redis, then try again" >&2
    exit 1
fi

known() {
    apt-cache show redis-server 2>/dev/null | grep -q '^Package:'
}

# The libraries that redis-server is linked with, but for those that are there.
missing_libraries() {
    apt-cache depends redis-tools redis-server | sed -n 's/^ *Depends: \(lib[^ ]*\)$/\1/p' | sort -u |
        while read -r library; do
            dpkg-query --show --showformat='${Status}' "$library" 2>/dev/null | grep -q 'ok installed' ||
                echo "$library"
        done
}

known || apt-get update --quiet >&2
rm -rf redis.part
mkdir redis.part
(
    cd redis.part
    # shellcheck disable=SC2046  # One word for each package.
    apt-get download --quiet redis-server redis-tools $(missing_libraries) >&2
    for package in *.deb; do
        dpkg --extract "$package" .
    done
    rm ./*.deb
)
mv redis.part redis
