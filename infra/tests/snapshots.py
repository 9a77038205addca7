"""The snapshots: which there are, and how an evaluated parameter file becomes one that people can read and compare."""

import base64
import hashlib
import json
import pathlib

INFRA = pathlib.Path(__file__).resolve().parent.parent
KEPT = INFRA / "tests" / "snapshots"
COMMANDS = INFRA / "package" / "commands"
PRESETS = ["steady", "steady-fleet", "elastic", "balanced", "swap"]

# Name of a snapshot, and its parameter file.
FILES = {
    "base": "base.bicepparam",
    **{preset: f"presets/{preset}.bicepparam" for preset in PRESETS},
    "base-regions": "tests/params/base-regions.bicepparam",
    "base-closed": "tests/params/base-closed.bicepparam",
    "elastic-regions": "tests/params/elastic-regions.bicepparam",
}
# Which stage 1 a stage 2 stands on.
BASES = {**{preset: "base" for preset in PRESETS}, "elastic-regions": "base-regions"}


def command_mark(action):
    return f"(the text of infra/package/commands/{action}.sh)"


def mark(content):
    """The name of the file of infra/ that has this content, else the content's checksum."""
    for path in [*INFRA.glob("vm/*"), *INFRA.glob("monitoring/**/*.*")]:
        if path.is_file() and path.read_bytes() == content:
            return f"(the text of infra/{path.relative_to(INFRA)})"
    return f"sha256 {hashlib.sha256(content).hexdigest()}"


def readable(resources, outputs):
    """Texts in base64 as lines, and texts that are files by their names, so that a change of them is seen once."""

    def walk(value, key=None):
        if isinstance(value, dict):
            return {k: walk(v, k) for k, v in value.items() if v is not None}
        if isinstance(value, list):
            return [walk(v) for v in value]
        if key == "customData":
            return cloud_init(value)
        if key in ("install", "update", "remove") and value == (COMMANDS / f"{key}.sh").read_text():
            return command_mark(key)
        if key in ("query", "serializedData") and "\n" in value:
            return mark(value.encode())
        return value

    return {"resources": walk(resources), "outputs": walk(outputs)}


def cloud_init(data):
    """The text of a cloud-init, with the files that are in it as base64 as lines, and scripts by their names."""
    lines = base64.b64decode(data).decode().splitlines()
    shown = []
    for line in lines:
        name, _, content = line.strip().partition(": ")
        if name == "content" and len(content) > 20:
            file = base64.b64decode(content)
            if file.startswith(b"#!"):
                shown.append(f"    content: {mark(file)}")
            else:
                shown += ["    content:"] + [f"      {one}" for one in file.decode().splitlines()]
        else:
            shown.append(line)
    return shown


def load(name):
    return json.loads((KEPT / f"{name}.json").read_text())


def text(snapshot):
    return json.dumps(snapshot, indent=1, ensure_ascii=False) + "\n"
