"""Archives for the tests: the real one of `cargo xtask package`, and changed copies of it; and the
commands of the VM Application."""

import gzip
import hashlib
import io
import json
import subprocess
import sys
import tarfile
from pathlib import Path

INFRA = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(INFRA / "tests"))
import evaluator  # noqa: E402

# The archive's name.
NAME = "worker.tgz"
COMMANDS = ("install", "update", "remove")


def commands(directory):
    """Writes the commands that a deployment of the template has to files, install.sh and so on."""
    if evaluator.AVAILABLE:
        resources = evaluator.evaluate(str(INFRA / "presets/elastic.bicepparam"))[0]
        found = [r["properties"]["publishingProfile"] for r in resources if "manageActions" in json.dumps(r)]
        assert len(found) == 1, found
        texts = found[0]["manageActions"]
    else:
        print("NOT CHECKED: the commands are the files', not those of the evaluated template", file=sys.stderr)
        texts = {name: (INFRA / "package/commands" / f"{name}.sh").read_text() for name in COMMANDS}
    for name in COMMANDS:
        (Path(directory) / f"{name}.sh").write_text(texts[name])


def build(xtask, worker, version, directory):
    """Packs a worker, without its symbols."""
    stripped = Path(directory) / "worker"
    subprocess.run(["strip", "-o", stripped, worker], check=True)
    arguments = ["--bin", stripped, "--version", version, "--out", directory, "--allow-large"]
    subprocess.run([xtask, "package", *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)


def small(directory):
    """Compiles the small workers of the tests: one that works, and one that is never ready."""
    source = Path(__file__).with_name("small.c")
    for name, flags in (("small", []), ("never-ready", ["-DNEVER_READY"])):
        subprocess.run(["cc", "-O1", "-s", *flags, "-o", Path(directory) / name, source], check=True)


def change(archive, version, directory, **files):
    """Copies an archive with another version and, by their names with `_` for `/`, other files."""
    members = {}
    with tarfile.open(archive) as source:
        for member in source.getmembers():
            content = source.extractfile(member).read() if member.isfile() else None
            members[member.name] = (member, content)
    manifest = json.loads(members["manifest.json"][1])
    lines = []
    for file in manifest["files"]:
        member, content = members[file["path"]]
        content = files.get(file["path"].replace("/", "_").replace(".", "_"), content)
        members[file["path"]] = (member, content)
        file |= {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        lines.append("    " + json.dumps(file))
    text = members["manifest.json"][1].decode()
    head = text[: text.index('  "files"')].replace(f'"{manifest["version"]}"', f'"{version}"')
    text = head + '  "files": [\n' + ",\n".join(lines) + "\n  ]\n}\n"
    members["manifest.json"] = (members["manifest.json"][0], text.encode())

    target = Path(directory) / f"worker-{version}.tgz"
    with gzip.open(target, "wb", compresslevel=1) as packed, tarfile.open(fileobj=packed, mode="w") as tar:
        for member, content in members.values():
            member.size = len(content or b"")
            tar.addfile(member, io.BytesIO(content) if content is not None else None)
    return target
