#!/bin/sh
# Installs what the file named as the argument requires into ./venv, unless that is done.
set -eu

requirements=$1
if cmp -s "$requirements" venv/requirements.txt && venv/bin/python -c 'import celery'; then
    exit 0
fi
python3 -m venv --clear venv
venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r "$requirements"
cp "$requirements" venv/requirements.txt
