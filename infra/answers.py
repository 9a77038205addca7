"""Reads answers of az, for the scripts of this folder: `python3 answers.py QUESTION [ARGUMENT...] <ANSWER`.

Each function below is a question, and prints one value. `--query` of az could answer most of them, but it has no
arithmetic, can't look into a JSON text inside a JSON text, and a stand-in for az would have to speak it.
"""

import json
import re
import signal
import sys

OURS = "reprieve"
FLEET_TYPES = ["Microsoft.Compute/virtualMachineScaleSets", "Microsoft.AzureFleet/fleets"]
# What starts VMs goes before what has them: autoscale would refill a set.
DELETION_ORDER = [
    "Microsoft.Insights/autoscaleSettings",
    "Microsoft.AzureFleet/fleets",
    "Microsoft.Compute/virtualMachineScaleSets",
    # Another preset has other alerts.
    "Microsoft.Insights/scheduledQueryRules",
]
ENDED = {"Succeeded", "Failed", "Canceled", "Deleted"}


def load():
    text = sys.stdin.read()
    return json.loads(text) if text.strip() else []


def is_type(resource, name):
    return resource["type"].lower() == name.lower()


def is_ours(resource, name):
    tags = resource.get("tags") or {}
    return tags.get("application") == OURS and tags.get("deployment") == name


# ----------------------------------------------------------------- errors


def innermost(error):
    """The messages at the ends of a tree of errors; those above them only say that something failed."""
    details = error.get("details") or []
    if not details:
        message = error.get("message") or error.get("code") or ""
        try:
            inner = json.loads(message)["error"]
        except (ValueError, KeyError, TypeError):
            return [message]
        return innermost(inner)
    return [message for detail in details for message in innermost(detail)]


def reason():
    text = sys.stdin.read().strip()
    text = text.split("ERROR: ", 1)[-1].strip()
    if text.startswith("{"):
        try:
            body = json.JSONDecoder().raw_decode(text)[0]
            text = " ".join(dict.fromkeys(innermost(body.get("error", body))))
        except ValueError:
            pass
    else:
        text = next((line.strip() for line in text.splitlines() if line.strip()), "")
    text = re.sub(r"\s+", " ", text) or "az gave no reason"
    return text if text.endswith((".", "!", "?")) else text + "."


# ----------------------------------------------------------------- values


def fields(*names):
    """Members, given by their paths; one a line, which is empty where there is none.

    ARM does not keep the case of a deployment's outputs: AZURE_GALLERY_NAME comes back as azurE_GALLERY_NAME.
    https://github.com/Azure/azure-dev/issues/512
    """
    whole, lines = load(), []
    for name in names:
        found = whole
        for part in name.split("."):
            found = {key.lower(): value for key, value in (found or {}).items()}.get(part.lower())
        lines.append("" if found is None else str(found))
    return "\n".join(lines)


def valid():
    """Fails where an answer is no JSON: a warning, or half of one."""
    try:
        load()
    except ValueError:
        sys.exit(1)


def package_version(path):
    # The others do without its start-up time.
    import tarfile

    with tarfile.open(path) as archive:
        for member in archive:
            if member.name.removeprefix("./") == "manifest.json":
                manifest = json.load(archive.extractfile(member))
                version = manifest["version"]
                # It becomes a part of paths and names.
                if manifest["name"] == "reprieve-worker" and re.fullmatch(r"\d{1,9}(\.\d{1,9}){2}", version):
                    return version
    raise KeyError("manifest.json")


def checksum(path):
    # macOS has no sha256sum.
    import hashlib

    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def blob_checksum():
    return (load().get("metadata") or {}).get("sha256", "")


def has_version(version):
    if not any(found["name"] == version for found in load()):
        sys.exit(1)


# ----------------------------------------------------------------- what exists


def deployment(name):
    """The account, the gallery, and the preset and version of the fleet; a line each."""
    ours = [r for r in load() if is_ours(r, name)]
    fleet = [r["tags"] for r in ours if any(is_type(r, kind) for kind in FLEET_TYPES)]

    def first(kind):
        return next((r["name"] for r in ours if is_type(r, kind)), "")

    # An update that was cut may have left sets with different ones.
    versions = sorted((tags.get("application-version", "0") for tags in fleet), key=by_number)
    return "\n".join(
        [
            first("Microsoft.Storage/storageAccounts"),
            first("Microsoft.Compute/galleries"),
            fleet[0].get("preset", "") if fleet else "",
            versions[-1] if versions else "",
        ]
    )


def by_number(version):
    return [int(part) if part.isdigit() else 0 for part in version.split(".")]


def deletable(name):
    found = load()
    return "\n".join(r["id"] for kind in DELETION_ORDER for r in found if is_type(r, kind) and is_ours(r, name))


def other_deployments(name):
    names = {
        (r.get("tags") or {}).get("deployment") for r in load() if (r.get("tags") or {}).get("application") == OURS
    }
    return " ".join(sorted(names - {name, None}))


def count_ours(name):
    found = load()
    return f"{sum(is_ours(r, name) for r in found)} {len(found)}"


def capacities():
    # A set of somebody else may have no size: a Flexible one without a profile.
    sizes = {s["name"]: (s.get("sku") or {}).get("capacity") for s in load()}
    return json.dumps({name: size for name, size in sizes.items() if size is not None}, sort_keys=True)


def stranded(name, fleets, location):
    """The sets of regions that the file `fleets` has no more; the set for escalated jobs is of no region."""

    def region(text):
        return text.replace(" ", "").lower()

    with open(fleets, encoding="utf-8") as file:
        regions = {region(fleet["location"] or location) for fleet in json.load(file)}
    names = (f"vmss-{name}-", f"fleet-{name}-")
    found = [r for r in load() if is_ours(r, name) and any(is_type(r, kind) for kind in FLEET_TYPES)]
    ours = [r for r in found if r["name"].startswith(names)]
    return ", ".join(s["name"] for s in ours if region(s["location"]) not in regions)


def ssh_key(name):
    return first_key(found.get("virtualMachineProfile") for found in load() if is_ours(found, name))


def ssh_key_of_fleet(name):
    profiles = [found["properties"].get("computeProfile") or {} for found in load()["value"] if is_ours(found, name)]
    return first_key(profile.get("baseVirtualMachineProfile") for profile in profiles)


def first_key(profiles):
    for profile in profiles:
        linux = ((profile or {}).get("osProfile") or {}).get("linuxConfiguration") or {}
        for key in (linux.get("ssh") or {}).get("publicKeys") or []:
            return key["keyData"].strip()
    return ""


def ip_rules(name, given):
    """The addresses that an account lets in, and the given ones."""
    known = []
    for account in load():
        if is_ours(account, name):
            # The name of this member differs between versions of az.
            known += [
                r.get("ipAddressOrRange") or r.get("value")
                for r in (account.get("networkRuleSet") or {}).get("ipRules") or []
            ]
    return ",".join(dict.fromkeys(address for address in known + given.split(",") if address))


def contacts(name):
    groups = [g.get("emailReceivers") or [] for g in load() if g["name"] == f"ag-{name}"]
    return ",".join(receiver["emailAddress"] for receivers in groups for receiver in receivers)


def budget_start(name):
    """The first day of the budget, which Azure lets nobody change."""
    starts = [b["properties"]["timePeriod"]["startDate"] for b in load()["value"] if b["name"] == f"budget-{name}"]
    return starts[0][:10] if starts else ""


# ----------------------------------------------------------------- deployments


def running(prefix):
    return next(
        (
            d["name"]
            for d in load()
            if d["name"].startswith(prefix) and d["properties"]["provisioningState"] not in ENDED
        ),
        "",
    )


def version_before(prefix, version):
    """The version of the latest deployment that succeeded with another one."""
    found = [d for d in load() if d["name"].startswith(prefix) and d["properties"]["provisioningState"] == "Succeeded"]
    found.sort(key=lambda d: d["properties"]["timestamp"])
    versions = [d["name"].removeprefix(prefix) for d in found]
    # The deployments of NAME-fleet begin with the same letters.
    versions = [v for v in versions if re.fullmatch(r"[0-9.]+", v)]
    return next((v for v in reversed(versions) if v != version), "")


# ----------------------------------------------------------------- VMs


def vms(name, sets, preset):
    """The VMs of the deployment, of which the file `sets` lists the sets.

    What a Compute Fleet writes on its VMs, and on the sets that it makes, is not known: of those, all are the
    deployment's that are not known as another's.
    """
    with open(sets, encoding="utf-8") as file:
        by_name = {s["name"].lower(): s for s in json.load(file)}

    def is_of_deployment(vm):
        # A VM of a Flexible set may have the tags of the set.
        set_name = ((vm.get("virtualMachineScaleSet") or {}).get("id") or "").rpartition("/")[2].lower()
        found = [vm, by_name.get(set_name, {})]
        if any(is_ours(one, name) for one in found):
            return True
        if preset != "steady-fleet" or any((one.get("tags") or {}).get("application") == OURS for one in found):
            return False
        packages = (vm.get("applicationProfile") or {}).get("galleryApplications") or []
        # Without a profile it is not known what it runs.
        return not packages or any("/reprieve-worker/" in (one.get("packageReferenceId") or "") for one in packages)

    return "\n".join(vm["name"] for vm in load() if is_of_deployment(vm))


def application(version):
    """What a VM says about a version: `done`, `failed REASON`, `waiting WHAT`, or `off`.

    The result of a VM Application is not a status of its own. It is JSON in the message of the extension's status,
    after a sentence: Enable succeeded: {"CurrentState": [{"applicationName", "version", "result"}]}.
    """
    view = load().get("instanceView") or {}
    power = [code for s in view.get("statuses") or [] if (code := s.get("code") or "").startswith("PowerState/")]
    if power and power[0] not in ("PowerState/running", "PowerState/starting"):
        return "off"
    for extension in view.get("extensions") or []:
        if not re.search("VMAppExtension|VMApplicationManager", f"{extension.get('name')} {extension.get('type')}"):
            continue
        for status in extension.get("statuses") or []:
            message = status.get("message") or ""
            for result in current_state(message):
                if result.get("applicationName") != "reprieve-worker" or result.get("version") != version:
                    continue
                text = result.get("result") or ""
                if "FAILED" in text.upper():
                    return "failed " + re.sub(r"\s+", " ", text)
                if "SUCCESS" in text.upper():
                    health = ((view.get("vmHealth") or {}).get("status") or {}).get("code", "unknown")
                    return "done" if health.lower().endswith("/healthy") else f"waiting health: {health}"
            # An older version's error is not this one's.
            if status.get("level") == "Error" and (version in message or not list(current_state(message))):
                return "failed " + re.sub(r"\s+", " ", message)
    return f"waiting version {version} is not installed yet"


def current_state(message):
    start = message.find("{")
    if start < 0:
        return []
    try:
        return json.JSONDecoder().raw_decode(message[start:])[0].get("CurrentState") or []
    except (ValueError, AttributeError):
        return []


def names():
    return "\n".join(found["name"] for found in load())


def length():
    return str(len(load()))


QUESTIONS = {
    function.__name__.replace("_", "-"): function
    for function in (
        reason,
        fields,
        valid,
        package_version,
        checksum,
        blob_checksum,
        has_version,
        deployment,
        deletable,
        other_deployments,
        count_ours,
        capacities,
        stranded,
        ssh_key,
        ssh_key_of_fleet,
        ip_rules,
        contacts,
        budget_start,
        running,
        version_before,
        vms,
        application,
        names,
        length,
    )
}

if __name__ == "__main__":
    # The script says that it was stopped.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        print(QUESTIONS[sys.argv[1]](*sys.argv[2:]) or "")
    except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
        # 1 is an answer of some questions.
        print(f"{sys.argv[1]}: az's answer has another shape: {error!r}", file=sys.stderr)
        sys.exit(3)
