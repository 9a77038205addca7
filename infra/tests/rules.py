"""What must hold of every deployment. Each rule reads the kept snapshots and yields what is wrong, a sentence each."""

import re

from snapshots import BASES, INFRA, command_mark

SETS = "Microsoft.Compute/virtualMachineScaleSets"
FLEETS = "Microsoft.AzureFleet/fleets"
SCALES = "Microsoft.Insights/autoscalesettings"
ACCOUNT = "Microsoft.Storage/storageAccounts"
ASSIGNMENT = "Microsoft.Authorization/roleAssignments"
IDENTITY = "Microsoft.ManagedIdentity/userAssignedIdentities"
VERSION = "Microsoft.Compute/galleries/applications/versions"

# Resources that have no tags, and the reason is Azure's: children, extensions of another resource, rights, and money.
UNTAGGED = {
    "Microsoft.Insights/diagnosticSettings",
    "Microsoft.Storage/storageAccounts/blobServices",
    "Microsoft.Storage/storageAccounts/blobServices/containers",
    "Microsoft.Storage/storageAccounts/queueServices",
    "Microsoft.Storage/storageAccounts/queueServices/queues",
    "Microsoft.Network/privateEndpoints/privateDnsZoneGroups",
    "Microsoft.Insights/dataCollectionRuleAssociations",
    "Microsoft.Insights/privateLinkScopes/scopedResources",
    "Microsoft.Authorization/roleAssignments",
    "Microsoft.Authorization/roleDefinitions",
    "Microsoft.Authorization/policyAssignments",
    "Microsoft.Consumption/budgets",
}
ROLES = {
    "queues": "974c5e8b-45b9-4653-ba55-5f855dd0fb88",
    "sender": "c6a89b2d-59bc-44d0-9896-0f6e12d7b80a",
    "blobs": "ba92f5b4-2d11-453d-a403-e96b0029c9fe",
}
AUTOSCALED = {"elastic", "balanced", "swap", "elastic-regions"}


def of(snapshot, kind):
    return [r for r in snapshot["resources"] if r["type"].lower() == kind.lower()]


def stages(all_, kind):
    """Snapshots of a stage: 1 has the account, 2 has not."""
    return {n: s for n, s in all_.items() if bool(of(s, ACCOUNT)) == (kind == 1)}


def preset_of(name):
    return name.removesuffix("-regions")


def sets(snapshot):
    return of(snapshot, SETS)


def profile_of(resource):
    p = resource["properties"]
    return (
        p["virtualMachineProfile"] if "virtualMachineProfile" in p else p["computeProfile"]["baseVirtualMachineProfile"]
    )


def machines(snapshot):
    """Whatever makes VMs, and their profile."""
    return [(r, profile_of(r)) for r in of(snapshot, SETS) + of(snapshot, FLEETS)]


def is_regular(resource):
    return profile_of(resource).get("priority") == "Regular"


def environment(profile):
    lines = profile["osProfile"]["customData"]
    start = next(i for i, line in enumerate(lines) if "worker.env" in line)
    found = {}
    for line in lines[start:]:
        pair = re.match(r"      ([A-Z_]+)=(.*)$", line)
        if pair:
            found[pair[1]] = pair[2]
        elif found:
            break
    return found


# ----------------------------------------------------------------- rules on the VMs


def spot_with_the_presets_eviction_policy(all_):
    wanted = {
        "steady": "Deallocate",
        "steady-fleet": "Delete",
        "elastic": "Delete",
        "balanced": "Delete",
        "swap": "Delete",
    }
    for name, snapshot in stages(all_, 2).items():
        spot = [r for r, _ in machines(snapshot) if not is_regular(r)]
        if not spot:
            yield f"{name}: no Spot capacity"
        for r in spot:
            p = r["properties"].get("spotPriorityProfile") or profile_of(r)
            if r["type"] == SETS and p.get("priority") != "Spot":
                yield f"{name}: {r['name']} is not Spot"
            if p.get("evictionPolicy") != wanted[preset_of(name)]:
                yield f"{name}: {r['name']} has eviction policy {p.get('evictionPolicy')}"


def no_public_address(all_):
    for name, snapshot in stages(all_, 2).items():
        if of(snapshot, "Microsoft.Network/publicIPAddresses"):
            yield f"{name}: a public address beside the VMs"
        for r, profile in machines(snapshot):
            for nic in profile["networkProfile"]["networkInterfaceConfigurations"]:
                for ip in nic["properties"]["ipConfigurations"]:
                    if "publicIPAddressConfiguration" in ip["properties"]:
                        yield f"{name}: VMs of {r['name']} have a public address"
    for name, snapshot in stages(all_, 1).items():
        for r in of(snapshot, "Microsoft.Network/publicIPAddresses"):
            users = [
                n
                for n in of(snapshot, "Microsoft.Network/natGateways")
                if {"id": r["id"]} in n["properties"]["publicIpAddresses"]
            ]
            if not users:
                yield f"{name}: {r['name']} is not a NAT gateway's"


def flexible_sets_with_named_application(all_):
    for name, snapshot in stages(all_, 2).items():
        version = of(snapshot, VERSION)[0]
        for r, profile in machines(snapshot):
            apps = profile["applicationProfile"]["galleryApplications"]
            if [a["packageReferenceId"] for a in apps] != [version["id"]]:
                yield f"{name}: {r['name']} does not name the version {version['name']}"
            if any(a.get("treatFailureAsDeploymentFailure") for a in apps):
                yield f"{name}: {r['name']} treats a failed install as a failed deployment: repairs would skip the VM"
            if not profile["diagnosticsProfile"]["bootDiagnostics"]["enabled"]:
                yield f"{name}: {r['name']} has no boot diagnostics"
            if not profile["osProfile"]["linuxConfiguration"]["disablePasswordAuthentication"]:
                yield f"{name}: {r['name']} accepts passwords"
            if profile["networkProfile"].get("networkApiVersion") not in ("2020-11-01", "2022-11-01"):
                yield f"{name}: {r['name']} has no networkApiVersion, which Flexible sets require"
        for r in sets(snapshot):
            p = r["properties"]
            if p["orchestrationMode"] != "Flexible" or p["singlePlacementGroup"]:
                yield f"{name}: {r['name']} is not Flexible"
            if (r["sku"]["name"] == "Mix") != ("skuProfile" in p):
                yield f"{name}: {r['name']} has a size Mix without sizes, or sizes without Mix"
            if "diffDiskSettings" in profile_of(r)["storageProfile"]["osDisk"] and "skuProfile" in p:
                yield f"{name}: {r['name']} has an ephemeral disk, which an instance mix can't have"
            if len(p.get("skuProfile", {}).get("vmSizes", [])) > 5:
                yield f"{name}: {r['name']} has more than five sizes"


def health_is_the_workers(all_):
    for name, snapshot in stages(all_, 2).items():
        for r, profile in machines(snapshot):
            listen = environment(profile).get("REPRIEVE_LISTEN", "")
            found = [
                e["properties"]
                for e in profile["extensionProfile"]["extensions"]
                if e["properties"]["type"] == "ApplicationHealthLinux"
            ]
            if len(found) != 1:
                yield f"{name}: {r['name']} has {len(found)} health extensions"
                continue
            settings = found[0]["settings"]
            if listen != f"127.0.0.1:{settings['port']}" or listen != "127.0.0.1:9090":
                yield f"{name}: {r['name']}: the extension asks port {settings['port']}, the worker listens on {listen}"
            if settings["requestPath"] != "/healthz" or settings["protocol"] != "http":
                yield f"{name}: {r['name']} asks {settings['protocol']} {settings['requestPath']}"
            if found[0]["typeHandlerVersion"] != "2.0":
                yield f"{name}: {r['name']} does not ask for rich states"
            if settings["intervalInSeconds"] * settings["numberOfProbes"] > 240:
                yield f"{name}: {r['name']}: the extension refuses intervals and probes over 240 s"


def repairs_replace(all_):
    for name, snapshot in stages(all_, 2).items():
        for r in sets(snapshot):
            policy = r["properties"].get("automaticRepairsPolicy", {})
            if not policy.get("enabled") or policy.get("repairAction") != "Replace":
                yield f"{name}: {r['name']} is not repaired"


def no_terminate_notification_on_spot(all_):
    for name, snapshot in stages(all_, 2).items():
        for r, profile in machines(snapshot):
            has = "terminateNotificationProfile" in profile.get("scheduledEventsProfile", {})
            if has and not is_regular(r):
                yield f"{name}: {r['name']} is Spot and has a terminate notification, which Azure refuses"
            if not has and is_regular(r):
                yield f"{name}: {r['name']} is regular and has no terminate notification"


def restore_outside_the_profile_and_without_autoscale(all_):
    for name, snapshot in stages(all_, 2).items():
        targets = {s["properties"]["targetResourceUri"] for s in of(snapshot, SCALES)}
        for r in sets(snapshot):
            if "spotRestorePolicy" in profile_of(r):
                yield f"{name}: {r['name']} has spotRestorePolicy inside virtualMachineProfile"
            policy = r["properties"].get("spotRestorePolicy", {})
            if policy.get("enabled") and r["id"] in targets:
                yield f"{name}: {r['name']} is autoscaled, which switches restoring off"
            if preset_of(name) == "steady" and not policy.get("enabled"):
                yield f"{name}: {r['name']} is not restored"
            if preset_of(name) == "steady" and profile_of(r)["billingProfile"]["maxPrice"] != -1:
                yield f"{name}: {r['name']} may be evicted for its price, and is not restored then"


def prices_are_numbers(all_):
    for name, snapshot in stages(all_, 2).items():
        for r, profile in machines(snapshot):
            price = profile.get("billingProfile", {}).get("maxPrice", -1)
            price = r["properties"].get("spotPriorityProfile", {}).get("maxPricePerVM", price)
            if isinstance(price, (str, bool)) or not (price == -1 or price > 0):
                yield f"{name}: {r['name']} has the price {price!r}"
            if is_regular(r) and ("billingProfile" in profile or "evictionPolicy" in profile):
                yield f"{name}: {r['name']} is regular and has a Spot setting"


def compute_fleet_maintains(all_):
    fleets = of(all_["steady-fleet"], FLEETS)
    if not fleets or sets(all_["steady-fleet"]) or of(all_["steady-fleet"], SCALES):
        yield "steady-fleet: not a Compute Fleet alone"
    for r in fleets:
        if r["properties"]["spotPriorityProfile"].get("maintain") is not True:
            yield f"steady-fleet: {r['name']} does not replace what was evicted"
        if len(r["properties"]["vmSizesProfile"]) < 2:
            yield f"steady-fleet: {r['name']} has one size to choose from"


def balanced_has_a_regular_base(all_):
    for r in sets(all_["balanced"]):
        mix = r["properties"].get("priorityMixPolicy", {})
        scale = [s for s in of(all_["balanced"], SCALES) if s["properties"]["targetResourceUri"] == r["id"]]
        minimum = scale and scale[0]["properties"]["profiles"][0]["capacity"]["minimum"]
        if mix.get("baseRegularPriorityCount", 0) < 1 or str(mix.get("baseRegularPriorityCount")) != minimum:
            yield f"balanced: {r['name']} has the base {mix} and the minimum {minimum}"
    for name, snapshot in stages(all_, 2).items():
        if name != "balanced" and any("priorityMixPolicy" in r["properties"] for r in sets(snapshot)):
            yield f"{name}: a set mixes priorities"


def swap_escalates_to_regular_vms(all_):
    for name, snapshot in stages(all_, 2).items():
        regular = [r for r, _ in machines(snapshot) if is_regular(r)]
        escalating = [environment(p).get("REPRIEVE_ESCALATE_TO") for r, p in machines(snapshot) if not is_regular(r)]
        if name != "swap":
            if regular or any(escalating):
                yield f"{name}: escalates, or has regular sets"
            continue
        if len(regular) != 1 or not all(escalating):
            yield "swap: no regular set, or Spot VMs that do not escalate"
            continue
        env = environment(profile_of(regular[0]))
        if {env.get("REPRIEVE_QUEUE")} != set(escalating) or "REPRIEVE_ESCALATE_TO" in env:
            yield f"swap: jobs go to {escalating}, the regular VMs read {env.get('REPRIEVE_QUEUE')}"
        if escalating[0] not in all_["base"]["outputs"]["REPRIEVE_QUEUES"]:
            yield f"swap: there is no queue {escalating[0]}"
        scale = [s for s in of(snapshot, SCALES) if s["properties"]["targetResourceUri"] == regular[0]["id"]]
        uris = {
            t["metricTrigger"]["metricResourceUri"].rsplit("/", 1)[1]
            for s in scale
            for t in s["properties"]["profiles"][0]["rules"]
        }
        if uris != set(escalating):
            yield f"swap: the regular set scales on {uris}"


# ----------------------------------------------------------------- rules on autoscale


def autoscale_begins_at_one_message_and_ends_at_none(all_):
    for name, snapshot in stages(all_, 2).items():
        scales = of(snapshot, SCALES)
        if bool(scales) != (name in AUTOSCALED):
            yield f"{name}: {len(scales)} autoscale settings"
        if name in AUTOSCALED and {s["properties"]["targetResourceUri"] for s in scales} != {
            r["id"] for r in sets(snapshot)
        }:
            yield f"{name}: a set without autoscale"
        for s in scales:
            profile = s["properties"]["profiles"][0]
            minimum, rules = int(profile["capacity"]["minimum"]), profile["rules"]
            up = [r for r in rules if r["scaleAction"]["direction"] == "Increase"]
            down = [r for r in rules if r["scaleAction"]["direction"] == "Decrease"]
            queues = {r["metricTrigger"]["metricResourceUri"] for r in rules}
            if not s["properties"]["enabled"] or len(s["properties"]["profiles"]) != 1 or len(rules) > 10:
                yield f"{name}: {s['name']} is off, or has {len(rules)} rules; ten are allowed"
            for r in rules:
                t = r["metricTrigger"]
                if t["dividePerInstance"] is not False or t["metricName"] != "ApproximateMessageCount":
                    yield f"{name}: {s['name']} divides the count by the instances"
                if "/services/queue/queues/" not in t["metricResourceUri"]:
                    yield f"{name}: {s['name']} does not watch a queue"
                if r["scaleAction"]["type"] != ("ExactCount" if r in up else "ChangeCount"):
                    yield f"{name}: {s['name']} scales by {r['scaleAction']['type']}"
            # All rules that scale in must agree, so one for each queue.
            if {r["metricTrigger"]["metricResourceUri"] for r in down} != queues:
                yield f"{name}: {s['name']} scales in while a queue has messages"
            for r in down:
                t = r["metricTrigger"]
                if (t["operator"], t["threshold"], t["timeAggregation"]) != ("LessThan", 1, "Maximum"):
                    yield f"{name}: {s['name']} scales in with messages left"
                most = int(profile["capacity"]["maximum"]) - minimum
                if int(r["scaleAction"]["value"]) != most:
                    yield f"{name}: {s['name']} scales in by {r['scaleAction']['value']}, not by {most}"
            if minimum == 0:
                for queue in queues:
                    first = min(
                        (r for r in up if r["metricTrigger"]["metricResourceUri"] == queue),
                        key=lambda r: r["metricTrigger"]["threshold"],
                    )
                    t = first["metricTrigger"]
                    if (t["operator"], t["threshold"], first["scaleAction"]["value"]) != ("GreaterThan", 0, "1"):
                        yield f"{name}: {s['name']} does not begin with one VM at one message"
            if max(int(r["scaleAction"]["value"]) for r in up) != int(profile["capacity"]["maximum"]):
                yield f"{name}: {s['name']} never reaches its maximum"


def thresholds_and_maxima_are_shared(all_):
    totals = {"elastic": 20, "balanced": 20, "swap": 20, "elastic-regions": 25}
    shares = {"elastic-regions": {"westeurope": 70, "northeurope": 30}}
    queues = {"elastic-regions": 2}
    for name, total in totals.items():
        scales = [s for s in of(all_[name], SCALES) if "regular" not in s["name"]]
        maxima = [int(s["properties"]["profiles"][0]["capacity"]["maximum"]) for s in scales]
        if sum(maxima) != total:
            yield f"{name}: the maxima are {maxima}, together not {total}"
        for s in scales:
            share = shares.get(name, {}).get(s["location"], 100)
            for rule in s["properties"]["profiles"][0]["rules"]:
                if rule["scaleAction"]["direction"] != "Increase":
                    continue
                # A VM starts when there are more jobs than the VMs before it, of all fleets, have at a time (2 each).
                due = (int(rule["scaleAction"]["value"]) - 1) * 2 * 100 // share // queues.get(name, 1)
                if rule["metricTrigger"]["threshold"] != due:
                    vm, at = rule["scaleAction"]["value"], rule["metricTrigger"]["threshold"]
                    yield f"{name}: {s['name']} starts VM {vm} at {at}, not {due}"


def capacity_is_kept(all_):
    for name, snapshot in stages(all_, 2).items():
        for r in sets(snapshot):
            capacity = r["sku"]["capacity"]
            scale = [s for s in of(snapshot, SCALES) if s["properties"]["targetResourceUri"] == r["id"]]
            if scale and capacity < int(scale[0]["properties"]["profiles"][0]["capacity"]["minimum"]):
                yield f"{name}: {r['name']} is deployed below its minimum"
    if sets(all_["elastic-regions"])[0]["sku"]["capacity"] != 7:
        yield "elastic-regions: a deployment changes the number of running VMs"
    if sum(r["sku"]["capacity"] for r in sets(all_["steady"])) != 4:
        yield "steady: not the fixed number"


# ----------------------------------------------------------------- rules on identities and roles


def identities_match(all_):
    for name, snapshot in stages(all_, 2).items():
        base = all_[BASES[name]]
        worker = next(r for r in of(base, IDENTITY) if "worker" in r["name"])
        for r, profile in machines(snapshot):
            if list(r.get("identity", {}).get("userAssignedIdentities", {})) != [worker["id"]]:
                yield f"{name}: {r['name']} has not the workers' identity"
            if environment(profile).get("AZURE_CLIENT_ID") != base["outputs"]["REPRIEVE_WORKER_CLIENT_ID"]:
                yield f"{name}: {r['name']} signs in with another client id"
            for e in profile["extensionProfile"]["extensions"]:
                who = (
                    e["properties"]["settings"]
                    .get("authentication", {})
                    .get("managedIdentity", {})
                    .get("identifier-value")
                )
                if who not in (None, worker["id"]):
                    yield f"{name}: the agent of {r['name']} signs in with another identity"
    for name, snapshot in stages(all_, 1).items():
        gallery = of(snapshot, "Microsoft.Compute/galleries")[0]
        own = next(r for r in of(snapshot, IDENTITY) if "gallery" in r["name"])
        if list(gallery["identity"]["userAssignedIdentities"]) != [own["id"]]:
            yield f"{name}: the gallery has not its own identity"


def worker_may_renew_everywhere(all_):
    for name, snapshot in stages(all_, 1).items():
        roles = of(snapshot, ASSIGNMENT)
        custom = {r["id"]: r for r in of(snapshot, "Microsoft.Authorization/roleDefinitions")}
        queues = of(snapshot, "Microsoft.Storage/storageAccounts/queueServices/queues")
        names = {q["name"].rsplit("/", 1)[1] for q in queues}
        for queue in [n for n in names if not n.endswith("-poison")]:
            if f"{queue}-poison" not in names:
                yield f"{name}: {queue} has no poison queue"
        for queue in queues:
            mine = [r for r in roles if r["scope"] == queue["id"] and "renews" in r["properties"]["description"]]
            if len(mine) != 1:
                yield f"{name}: the worker has {len(mine)} roles on {queue['name']}"
                continue
            role = mine[0]["properties"]["roleDefinitionId"]
            if role in custom:
                rights = custom[role]["properties"]["permissions"][0]
                needed = {
                    f"{queue['type']}/messages/{right}"
                    for right in ("read", "write", "delete", "add/action", "process/action")
                }
                if set(rights["dataActions"]) != needed or rights["actions"] != [f"{queue['type']}/read"]:
                    yield f"{name}: the custom role has {rights}"
            elif not role.endswith(ROLES["queues"]):
                yield f"{name}: the role on {queue['name']} does not allow an update of a message"
        for r in roles:
            if r["properties"].get("principalType") not in ("ServicePrincipal", "User", "Group"):
                yield f"{name}: an assignment without the type of its principal races the new identity"
            if "/queueServices/" not in r["scope"] and "/blobServices/" not in r["scope"]:
                yield f"{name}: a role on more than a queue or a container: {r['scope']}"
        for container, who in (("packages", "copies"), ("packages", "Uploads"), ("reprieve", "checkpoints")):
            found = [
                r
                for r in roles
                if r["scope"].endswith(f"/containers/{container}") and who in r["properties"]["description"]
            ]
            if who != "Uploads" and not found:
                yield f"{name}: nobody {who} on {container}"
            if any(not r["properties"]["roleDefinitionId"].endswith(ROLES["blobs"]) for r in found):
                yield f"{name}: a wrong role on {container}"
    if not any("Uploads" in r["properties"]["description"] for r in of(all_["base"], ASSIGNMENT)):
        yield "base: nobody may upload a package"


def roles_before_vms(all_):
    """Stage 2 reads both role assignments of stage 1 into the sets' tags, so no set exists before them."""
    from evaluator import stand_in

    for name, snapshot in stages(all_, 2).items():
        base = all_[BASES[name]]
        made = {stand_in(r["id"], "principalId"): r for r in of(base, ASSIGNMENT)}
        for r, _ in machines(snapshot):
            for tag, place in (("queue-role-of", "/queueServices/"), ("container-role-of", "/blobServices/")):
                role = made.get(r.get("tags", {}).get(tag))
                if (
                    role is None
                    or place not in role["scope"]
                    or "worker" not in role["properties"]["description"].lower()
                ):
                    yield f"{name}: {r['name']} may start before the worker's role in {place} exists"
        if of(snapshot, "Microsoft.Storage/storageAccounts/queueServices/queues"):
            yield f"{name}: stage 2 makes queues, on which no role was assigned"


# ----------------------------------------------------------------- rules on the store and the networks


def store_is_hardened(all_):
    wanted = {
        "allowSharedKeyAccess": False,
        "allowBlobPublicAccess": False,
        "minimumTlsVersion": "TLS1_2",
        "supportsHttpsTrafficOnly": True,
        "defaultToOAuthAuthentication": True,
        "allowCrossTenantReplication": False,
        "isLocalUserEnabled": False,
        "isHnsEnabled": False,
        "allowedCopyScope": "AAD",
    }
    for name, snapshot in stages(all_, 1).items():
        (account,) = of(snapshot, ACCOUNT)
        for key, value in wanted.items():
            if account["properties"].get(key) != value:
                yield f"{name}: {key} is {account['properties'].get(key)}, not {value}"
        rules = account["properties"]["networkAcls"]
        if rules["defaultAction"] != "Deny" or rules["bypass"] != "AzureServices":
            yield f"{name}: the storage firewall is open, or shuts out the gallery"
        (blobs,) = of(snapshot, "Microsoft.Storage/storageAccounts/blobServices")
        p = blobs["properties"]
        if p["isVersioningEnabled"] or p["deleteRetentionPolicy"]["enabled"]:
            yield f"{name}: every overwritten checkpoint would be kept and billed"
        for c in of(snapshot, "Microsoft.Storage/storageAccounts/blobServices/containers"):
            if c["properties"]["publicAccess"] != "None":
                yield f"{name}: {c['name']} is public"


def every_region_has_its_paths(all_):
    for name, snapshot in stages(all_, 1).items():
        (account,) = of(snapshot, ACCOUNT)
        allowed = {r["id"] for r in account["properties"]["networkAcls"]["virtualNetworkRules"]}
        endpoints = of(snapshot, "Microsoft.Network/privateEndpoints")
        logs = name != "base-closed"
        for net in of(snapshot, "Microsoft.Network/virtualNetworks"):
            workers = next(s for s in net["properties"]["subnets"] if s["name"] == "workers")["properties"]
            subnet = f"{net['id']}/subnets/workers"
            services = {e["service"] for e in workers.get("serviceEndpoints", [])}
            private = {
                g
                for e in endpoints
                if e["location"] == net["location"]
                for c in e["properties"]["privateLinkServiceConnections"]
                for g in c["properties"]["groupIds"]
            }
            if workers["defaultOutboundAccess"] is not False:
                yield f"{name}: {net['name']} has outbound access by default"
            by_service = "Microsoft.Storage.Global" in services and subnet in allowed
            if not by_service and not {"blob", "queue"} <= private:
                yield f"{name}: {net['name']} has no path to storage"
            if logs and "natGateway" not in workers and "azuremonitor" not in private:
                yield f"{name}: {net['name']} has no path to the workspace"
            if "networkSecurityGroup" not in workers:
                yield f"{name}: {net['name']} has no security group"
        for net in of(snapshot, "Microsoft.Network/virtualNetworks"):
            for s in net["properties"]["subnets"]:
                if s["name"] == "endpoints" and s["properties"].get("privateEndpointNetworkPolicies") != "Disabled":
                    yield f"{name}: the security group of {net['name']} keeps workers from the private endpoints"
        for e in endpoints:
            zones = [
                g
                for g in of(snapshot, "Microsoft.Network/privateEndpoints/privateDnsZoneGroups")
                if g["name"].startswith(e["name"] + "/")
            ]
            if not zones:
                yield f"{name}: {e['name']} has no DNS zone"
    for name, snapshot in stages(all_, 2).items():
        nets = {n["id"]: n for n in of(all_[BASES[name]], "Microsoft.Network/virtualNetworks")}
        for r, profile in machines(snapshot):
            nic = profile["networkProfile"]["networkInterfaceConfigurations"][0]
            subnet = nic["properties"]["ipConfigurations"][0]["properties"]["subnet"]["id"]
            net = nets.get(subnet.removesuffix("/subnets/workers"))
            if net is None or net["location"] != r["location"]:
                yield f"{name}: {r['name']} is in a network that stage 1 does not make in its region"


def nothing_comes_in(all_):
    for name, snapshot in stages(all_, 1).items():
        for group in of(snapshot, "Microsoft.Network/networkSecurityGroups"):
            rules = [
                r["properties"]
                for r in group["properties"]["securityRules"]
                if r["properties"]["direction"] == "Inbound"
            ]
            last = max(rules, key=lambda r: r["priority"], default={})
            if (
                last.get("access") != "Deny"
                or last.get("sourceAddressPrefix") != "*"
                or last.get("destinationPortRange") != "*"
            ):
                yield f"{name}: {group['name']} does not deny all else"
            for r in rules:
                if r["access"] == "Allow" and (
                    r["destinationPortRange"] != "22" or not r["sourceAddressPrefix"].startswith("10.")
                ):
                    yield f"{name}: {group['name']} lets in {r}"
            if name != "base-regions" and len(rules) != 1:
                yield f"{name}: {group['name']} has {len(rules)} inbound rules"


# ----------------------------------------------------------------- rules on the package and the first boot


def version_reaches_all_regions(all_):
    for name, snapshot in stages(all_, 2).items():
        (version,) = of(snapshot, VERSION)
        publishing = version["properties"]["publishingProfile"]
        regions = {t["name"] for t in publishing["targetRegions"]}
        needed = {r["location"] for r, _ in machines(snapshot)} | {version["location"]}
        if not needed <= regions:
            yield f"{name}: the package is not copied to {needed - regions}"
        if publishing["settings"].get("packageFileName") != "worker.tgz" or "configFileName" in publishing["settings"]:
            yield f"{name}: the package is not worker.tgz alone"
        if "?" in publishing["source"]["mediaLink"]:
            yield f"{name}: a SAS stands in the resource"


def commands_are_the_packages(all_):
    for name, snapshot in stages(all_, 2).items():
        actions = of(snapshot, VERSION)[0]["properties"]["publishingProfile"]["manageActions"]
        for action in ("install", "update", "remove"):
            if actions.get(action) != command_mark(action):
                yield f"{name}: {action} is not infra/package/commands/{action}.sh"
    for action in ("install", "update", "remove"):
        if len((INFRA / "package" / "commands" / f"{action}.sh").read_text()) > 4096:
            yield f"{action}.sh is longer than the 4,096 characters of a command"


def first_boot_writes_the_settings(all_):
    fixed = {
        "REPRIEVE_LISTEN": "127.0.0.1:9090",
        "REPRIEVE_STATE_DIR": "/run/reprieve",
        "REPRIEVE_CONCURRENCY": "auto",
        "REPRIEVE_LOG_FORMAT": "json",
        "MALLOC_MMAP_THRESHOLD_": "1048576",
        "MALLOC_TRIM_THRESHOLD_": "1048576",
    }
    for name, snapshot in stages(all_, 2).items():
        base = all_[BASES[name]]
        for r, profile in machines(snapshot):
            env, lines = environment(profile), profile["osProfile"]["customData"]
            wanted = {
                **fixed,
                "REPRIEVE_STORE": f"azure:{base['outputs']['AZURE_STORAGE_ACCOUNT']}",
                "REPRIEVE_INSTANCES": "4" if name == "elastic-regions" else "1",
                "REPRIEVE_QUEUE": "work-escalated"
                if is_regular(r)
                else "frames-{0..1}"
                if name == "elastic-regions"
                else "work",
            }
            for key, value in wanted.items():
                if env.get(key) != value:
                    yield f"{name}: {r['name']}: {key} is {env.get(key)}, not {value}"
            escalates = (env.get("REPRIEVE_ESCALATE_TO"), env.get("REPRIEVE_ESCALATE_AFTER"))
            if escalates != (("work-escalated", "3") if name == "swap" and not is_regular(r) else (None, None)):
                yield f"{name}: {r['name']} escalates to {escalates}"
            if lines[0] != "#cloud-config" or any("_BASE64" in line for line in lines):
                yield f"{name}: {r['name']} has no whole cloud-init"
            if '    permissions: "0640"' not in lines:
                yield f"{name}: everybody on {r['name']} may read worker.env"


# ----------------------------------------------------------------- rules on the rest


def everything_is_tagged(all_):
    for name, snapshot in all_.items():
        for r in snapshot["resources"]:
            if r["type"] in UNTAGGED:
                continue
            if r.get("tags", {}).get("application") != "reprieve" or not r["tags"].get("deployment"):
                yield f"{name}: {r['type']} {r['name']} is not tagged"


def logs_have_a_way(all_):
    for name, snapshot in stages(all_, 1).items():
        rule = of(snapshot, "Microsoft.Insights/dataCollectionRules")[0]["properties"]
        syslog = rule["dataSources"]["syslog"][0]
        if syslog["facilityNames"] != ["local3"] or "Microsoft-Syslog" not in rule["dataFlows"][0]["streams"]:
            yield f"{name}: the rule does not collect the worker's facility"
    for name, snapshot in stages(all_, 2).items():
        by_policy = of(snapshot, "Microsoft.Authorization/policyAssignments")
        for r, profile in machines(snapshot):
            kinds = {e["properties"]["type"] for e in profile["extensionProfile"]["extensions"]}
            associated = [
                a for a in of(snapshot, "Microsoft.Insights/dataCollectionRuleAssociations") if a["scope"] == r["id"]
            ]
            if "AzureMonitorLinuxAgent" not in kinds or not (associated or by_policy):
                yield f"{name}: no log of {r['name']} reaches the workspace"


def somebody_is_woken(all_):
    always = {"oldest-message", "poison", "silent-workers", "evictions", "abandoned-drains"}
    for name, snapshot in stages(all_, 2).items():
        rules = {a["name"].rsplit("-", 1)[0] for a in of(snapshot, "Microsoft.Insights/scheduledQueryRules")}
        wanted = always | {"missing-vms" if name.startswith("steady") else "unserved"}
        if rules != wanted:
            yield f"{name}: alerts {sorted(rules)}, not {sorted(wanted)}"
        measured = {d["scope"] for d in of(snapshot, "Microsoft.Insights/diagnosticSettings")}
        if measured != {s["id"] for s in of(snapshot, SCALES)}:
            yield f"{name}: an autoscale setting is not watched"
        if name != "elastic-regions" and not of(snapshot, "Microsoft.Consumption/budgets"):
            yield f"{name}: no budget"


ALL = [
    spot_with_the_presets_eviction_policy,
    no_public_address,
    flexible_sets_with_named_application,
    health_is_the_workers,
    repairs_replace,
    no_terminate_notification_on_spot,
    restore_outside_the_profile_and_without_autoscale,
    prices_are_numbers,
    compute_fleet_maintains,
    balanced_has_a_regular_base,
    swap_escalates_to_regular_vms,
    autoscale_begins_at_one_message_and_ends_at_none,
    thresholds_and_maxima_are_shared,
    capacity_is_kept,
    identities_match,
    worker_may_renew_everywhere,
    roles_before_vms,
    store_is_hardened,
    every_region_has_its_paths,
    nothing_comes_in,
    version_reaches_all_regions,
    commands_are_the_packages,
    first_boot_writes_the_settings,
    everything_is_tagged,
    logs_have_a_way,
    somebody_is_woken,
]
