"""Judges what infra/preflight has asked az: `python3 findings.py report FOLDER LOCATION PRESET`.

Prints a table of findings. The exit code is 1 if one of them would make a deployment fail.
"""

import json
import pathlib
import re
import signal
import sys

INFRA = pathlib.Path(__file__).parent

# The scripts were written against the commands of 2.91. A .bicepparam without a template needs 2.53.
OLDEST_AZ, OLDEST_BICEP = (2, 53, 0), (0, 36, 0)

PROVIDERS = [
    "Microsoft.Compute",
    "Microsoft.Consumption",
    "Microsoft.Insights",
    "Microsoft.ManagedIdentity",
    "Microsoft.Network",
    "Microsoft.OperationalInsights",
    "Microsoft.Storage",
]
OF_PRESET = {"steady-fleet": ["Microsoft.AzureFleet", "Microsoft.PolicyInsights"]}

ACTIONS = [
    ("deploy", "Microsoft.Resources/deployments/write", "Contributor"),
    ("make resources", "Microsoft.Compute/virtualMachineScaleSets/write", "Contributor"),
    ("assign roles", "Microsoft.Authorization/roleAssignments/write", "Role Based Access Control Administrator"),
]
# The preset's policy brings the logs of a Compute Fleet.
ASSIGN_POLICIES = ("assign policies", "Microsoft.Authorization/policyAssignments/write", "Resource Policy Contributor")

OK, WARN, FAIL = "ok", "warn", "FAIL"


def numbers(text):
    found = re.search(r"(\d+)\.(\d+)\.(\d+)", text)
    return tuple(int(part) for part in found.groups()) if found else None


def dotted(version):
    return ".".join(str(part) for part in version)


NETWORKS = ("natGateway", "serviceEndpoints", "privateEndpoints")
MEMBERS = ("location", "addressPrefix", "network", "sizes", "zones", "sharePercent", "maxPrice")


def region_name(name, otherwise):
    return (name or otherwise).lower().replace(" ", "")


def listed():
    """The list in fleets.json, and what is wrong with its form."""
    try:
        found = json.loads((INFRA / "fleets.json").read_text())
    except ValueError as error:
        return [], [f"is not JSON: {error}"]
    if not isinstance(found, list) or not all(isinstance(fleet, dict) for fleet in found):
        return [], ["is not a list of objects"]
    problems = [] if found else ["is empty; name at least one region with sizes"]
    for fleet in found:
        problems += [f"a region has no {name}" for name in MEMBERS if name not in fleet]
        problems += [f"{name} is a text" for name in ("location", "addressPrefix", "network", "maxPrice") if not
                     isinstance(fleet.get(name, ""), str)]
        problems += [f"{name} is a list of texts" for name in ("sizes", "zones") if not
                     (isinstance(fleet.get(name, []), list) and all(isinstance(x, str) for x in fleet.get(name, [])))]
        share = fleet.get("sharePercent", 1)
        if type(share) is not int or not 1 <= share <= 100:
            problems.append("sharePercent is a whole number from 1 to 100")
    return ([] if problems else found), problems


def fleets(location):
    return [{**fleet, "location": region_name(fleet["location"], location)} for fleet in listed()[0]]


def is_price(text):
    return text == "-1" or bool(re.fullmatch(r"(0|[1-9]\d{0,3})(\.\d{1,5})?", text) and float(text) > 0)


def is_private_16(text):
    found = re.fullmatch(r"(\d{1,3})\.(\d{1,3})\.0\.0/16", text)
    if not found or any(part.startswith("0") and part != "0" for part in found.groups()):
        return False
    a, b = map(int, found.groups())
    return (a == 10 and b < 256) or (a == 172 and 16 <= b < 32) or (a, b) == (192, 168)


def twice(texts):
    lowered = [text.lower() for text in texts]
    return sorted({text for text in lowered if lowered.count(text) > 1})


def settings(location, preset):
    """What the templates refuse about fleets.json: the same checks as in base.bicep and fleet.bicep."""
    problems = listed()[1]
    chosen = fleets(location)
    if chosen:
        shares = sum(fleet["sharePercent"] for fleet in chosen)
        if shares != 100:
            problems.append(f"the shares add up to {shares} percent, not to 100")
        elif min(parts(parameters(preset)["instances"], chosen)) < 1:
            problems.append(f"too few instances in presets/{preset}.bicepparam for the shares")
        problems += [f"{region} is listed twice; give its fleet more sizes instead"
                     for region in twice(fleet["location"] for fleet in chosen)]
        problems += [f"two regions have addressPrefix {prefix}"
                     for prefix in twice(fleet["addressPrefix"] for fleet in chosen)]
        if sum(fleet["network"] == "privateEndpoints" for fleet in chosen) > 1:
            problems.append("privateEndpoints can be had in one region")
    for fleet in chosen:
        region, sizes = fleet["location"], fleet["sizes"]
        if fleet["network"] not in NETWORKS:
            problems.append(f'network "{fleet["network"]}" of {region} is none of {", ".join(NETWORKS)}')
        if not is_price(fleet["maxPrice"]):
            problems.append(f'maxPrice "{fleet["maxPrice"]}" of {region} is neither "-1" nor such as "0.05"')
        elif preset == "steady" and fleet["maxPrice"] != "-1":
            problems.append(f'with steady, maxPrice of {region} must be "-1"')
        if not is_private_16(fleet["addressPrefix"]):
            problems.append(f'addressPrefix "{fleet["addressPrefix"]}" of {region} is no /16 such as 10.64.0.0/16')
        if not 1 <= len(sizes) <= 5:
            problems.append(f"{region} has {len(sizes)} sizes, and one to five are possible")
        problems += [f"{region} lists {text} twice" for text in twice(sizes) + twice(fleet["zones"])]
        problems += [f'zone "{zone}" of {region} is none of 1, 2, 3' for zone in fleet["zones"] if zone not in
                     ("1", "2", "3")]
        if len(sizes) > 1:
            problems += [f"{size} of {region} can't be in an instance mix, which takes A, B, D, E and F" for size in
                         sizes if not re.match("Standard_(?!DC|EC)[ABDEF]", size)]
    for problem in problems:
        yield FAIL, "fleets.json", problem, "change infra/fleets.json"
    if not problems:
        yield OK, "fleets.json", f"{len(chosen)} region{'s' if len(chosen) > 1 else ''}", ""


def parameters(preset):
    """What a preset asks for, with the defaults of fleet.bicep."""
    found = {"baseInstances": 0, "regularPercentAboveBase": 0, "escalationInstances": 2, "escalationSize": ""}
    text = (INFRA / "presets" / f"{preset}.bicepparam").read_text()
    for name, value in re.findall(r"^param (\w+) = (\d+|'[^'$]*')$", text, re.M):
        found[name] = value[1:-1] if value.startswith("'") else int(value)
    return found


def parts(total, chosen):
    """The part of a total for each fleet, as partOf of shared.bicep has it."""
    ends, share = [0], 0
    for fleet in chosen:
        share += fleet["sharePercent"]
        ends.append((2 * total * share + 100) // 200)
    return [after - before for before, after in zip(ends, ends[1:])]


# ----------------------------------------------------------------- findings


def tools(folder):
    version = json.loads((folder / "version").read_text())["azure-cli"]
    enough = numbers(version) >= OLDEST_AZ
    yield (OK if enough else FAIL, "az", version, "" if enough else f"az upgrade; {dotted(OLDEST_AZ)} is the oldest")
    bicep = numbers((folder / "bicep").read_text())
    if bicep is None:
        yield WARN, "Bicep", "not installed", "az installs it when it is first needed; az bicep install"
    else:
        enough = bicep >= OLDEST_BICEP
        yield (
            OK if enough else FAIL,
            "Bicep",
            dotted(bicep),
            "" if enough else f"az bicep upgrade; {dotted(OLDEST_BICEP)} is the oldest",
        )


def sign_in(folder, location):
    account = json.loads((folder / "account").read_text())
    enabled = account.get("state") == "Enabled"
    yield (
        OK if enabled else FAIL,
        "subscription",
        f"{account['name']} ({account['id']}), {account.get('state')}",
        "" if enabled else "az account set --subscription NAME",
    )
    group = json.loads((folder / "group").read_text())
    if not group:
        yield OK, "resource group", f"will be made in {location}", ""
    elif group["location"].lower() == location:
        yield OK, "resource group", f"{group['name']} in {location}", ""
    else:
        found = f"{group['name']} is in {group['location']}"
        yield FAIL, "resource group", found, "leave --location out, or give another --name"


def missing_providers(preset, file):
    states = {p["namespace"].lower(): p["registrationState"] for p in json.loads(pathlib.Path(file).read_text())}
    return [p for p in PROVIDERS + OF_PRESET.get(preset, []) if states.get(p.lower()) != "Registered"]


def providers(folder, preset):
    missing = missing_providers(preset, folder / "providers")
    for provider in missing:
        yield FAIL, "provider", f"{provider} is not registered", "infra/preflight --register"
    if not missing:
        yield OK, "providers", "all are registered", ""


def capability(sku, name):
    return next((c["value"] for c in sku.get("capabilities") or [] if c["name"] == name), "")


def offers(region, size, zones, skus, spot=True):
    """What is wrong with a size, and the size itself."""
    sku = next((s for s in skus if s["name"].lower() == size.lower()), None)
    other = "take another size in fleets.json, or another region"
    if sku is None:
        return FAIL, f"{size} is not offered in {region}", other, None
    restrictions = sku.get("restrictions") or []
    if any(r["type"] == "Location" for r in restrictions):
        why = ", ".join(sorted({r["reasonCode"] for r in restrictions if r["type"] == "Location"}))
        return FAIL, f"{size} is not offered in {region} to this subscription ({why})", other, sku
    offered = {zone for info in sku.get("locationInfo") or [] for zone in info.get("zones") or []}
    for restriction in restrictions:
        if restriction["type"] == "Zone":
            offered -= set((restriction.get("restrictionInfo") or {}).get("zones") or [])
    lacking = sorted(set(zones) - offered)
    if lacking:
        return (
            FAIL,
            f"{size} is not offered in zone {', '.join(lacking)} of {region}",
            "take the zone out of zones in fleets.json, or take another size",
            sku,
        )
    if spot and capability(sku, "LowPriorityCapable") == "False":
        return FAIL, f"{size} can't be a Spot VM", other, sku
    if capability(sku, "TrustedLaunchDisabled") == "True":
        return FAIL, f"{size} has no trusted launch", "set trustedLaunch to false, or take another size", sku
    return OK, f"{size} in {region}, zones {', '.join(zones) or 'none'}", "", sku


def quota(usages, kind):
    """The limit and what is in use."""
    found = next((u for u in usages if u["name"]["value"].lower() == kind.lower()), None)
    return (int(found["limit"]), int(found["currentValue"])) if found else (0, 0)


def enough(usages, kind, label, region, least, most):
    """Compares a quota with the vCPUs that a preset can't do without, and those that it may come to want."""
    limit, used = quota(usages, kind)
    ask = f"ask for {most} in the portal: Subscriptions, Usage + quotas, {label}, {region}"
    if limit < least:
        return FAIL, "quota", f"{label} in {region}: {limit} vCPUs, {least} are needed", ask
    if limit < most:
        return WARN, "quota", f"{label} in {region}: {limit} vCPUs, of {most} at most", ask
    if limit - used < most:
        return (
            WARN,
            "quota",
            f"{label} in {region}: {limit} vCPUs, {used} in use; {most} at most",
            "nothing, if it is this fleet that uses them",
        )
    return OK, "quota", f"{label} in {region}: {limit} vCPUs, {most} at most", ""


def capacity(folder, location, preset):
    chosen, wanted = fleets(location), parameters(preset)
    if any(row[0] == FAIL for row in settings(location, preset)):
        # Parts of wrong shares would be wrong.
        return
    elastic = preset in ("elastic", "balanced", "swap")
    offered = []
    totals, bases = parts(wanted["instances"], chosen), parts(wanted["baseInstances"], chosen)
    for i, fleet in enumerate(chosen):
        region = fleet["location"]
        skus = json.loads((folder / f"skus.{region}").read_text())
        usages = json.loads((folder / f"usage.{region}").read_text())
        found = []
        for size in fleet["sizes"]:
            verdict, text, cure, sku = offers(region, size, fleet["zones"], skus)
            yield verdict, "size", text, cure
            found += [sku] if sku else []
        offered += found
        if len({capability(sku, "MaxResourceVolumeMB") not in ("", "0") for sku in found}) > 1:
            yield FAIL, "size", f"some sizes in {region} have a local disk", "an instance mix has them all, or none"
        interfaces = [set(re.findall(r"\w+", capability(sku, "DiskControllerTypes"))) for sku in found]
        if all(interfaces) and found and not set.intersection(*interfaces):
            yield FAIL, "size", f"the sizes in {region} have no disk interface in common", "an instance mix needs one"
        if not found:
            continue
        cores = max(int(capability(sku, "vCPUs") or 1) for sku in found)
        above = totals[i] - bases[i]
        regular = above * wanted["regularPercentAboveBase"] // 100
        spot = (above - regular) * cores
        yield enough(usages, "lowPriorityCores", "Spot vCPUs", region, cores if elastic else spot, spot)
        if preset == "balanced":
            yield from regular_quotas(usages, found, region, bases[i] * cores, (bases[i] + regular) * cores)
        if preset == "swap" and i == 0:
            size = wanted["escalationSize"] or fleet["sizes"][0]
            verdict, text, cure, sku = offers(region, size, fleet["zones"], skus, spot=False)
            if verdict == FAIL:
                yield verdict, "size", f"for escalated jobs, {text}", cure
            else:
                offered.append(sku)
                cores = int(capability(sku, "vCPUs") or 1)
                yield from regular_quotas(usages, [sku], region, cores, wanted["escalationInstances"] * cores)
    if len({capability(sku, "CpuArchitectureType") for sku in offered}) > 1:
        yield FAIL, "size", "the sizes have different processors", "one package is for one processor"


def regular_quotas(usages, skus, region, least, most):
    """Regular VMs count for their region and for their family; Spot VMs for neither."""
    yield enough(usages, "cores", "regular vCPUs", region, least, most)
    for family in dict.fromkeys(sku["family"] for sku in skus):
        yield enough(usages, family, family, region, least, most)


def allows(permission, action):
    def matches(pattern):
        return re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), action, re.I)

    return any(map(matches, permission.get("actions") or [])) and not any(
        map(matches, permission.get("notActions") or [])
    )


def rights(folder, preset):
    permissions = json.loads((folder / "permissions").read_text())["value"]
    for name, action, role in ACTIONS + ([ASSIGN_POLICIES] if preset == "steady-fleet" else []):
        granted = [p for p in permissions if allows(p, action)]
        if not granted:
            yield FAIL, "right", f"you may not {name}", f"ask for the role {role} on the resource group or subscription"
        elif all(p.get("condition") for p in granted):
            yield WARN, "right", f"you may {name} under a condition", "see that it allows the roles in infra/README.md"
        else:
            yield OK, "right", f"you may {name}", ""


def report(folder, location, preset):
    folder = pathlib.Path(folder)
    found = [
        *tools(folder),
        *sign_in(folder, location),
        *providers(folder, preset),
        *settings(location, preset),
        *capacity(folder, location, preset),
        *rights(folder, preset),
    ]
    widths = [max(len(row[i]) for row in found) for i in range(3)]
    for row in found:
        cells = [cell.ljust(width) for cell, width in zip(row, widths)]
        print("  ".join([*cells, row[3]]).rstrip())
    return 1 if any(row[0] == FAIL for row in found) else 0


if __name__ == "__main__":
    # The script says that it was stopped.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    question, *rest = sys.argv[1:]
    if question == "report":
        sys.exit(report(*rest))
    lines = missing_providers(*rest) if question == "missing" else dict.fromkeys(f["location"] for f in fleets(*rest))
    print("\n".join(lines), end="\n" if lines else "")
