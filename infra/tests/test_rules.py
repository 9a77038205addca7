"""The rules of rules.py hold of the kept snapshots, and each of them notices what it is for. Needs no other tool."""

import copy
import unittest

import rules
from rules import ACCOUNT, ASSIGNMENT, FLEETS, SCALES, VERSION, machines, of, profile_of, sets
from snapshots import FILES, load


def account(s):
    return of(s, ACCOUNT)[0]["properties"]


def first(s):
    return sets(s)[0]


def vm(s):
    return profile_of(machines(s)[0][0])


def health(s):
    return vm(s)["extensionProfile"]["extensions"][0]["properties"]


def scale(s):
    return of(s, SCALES)[0]["properties"]["profiles"][0]


def last_rule(s):
    return scale(s)["rules"][-1]


def publishing(s):
    return of(s, VERSION)[0]["properties"]["publishingProfile"]


def subnet(s, i=0):
    return of(s, "Microsoft.Network/virtualNetworks")[i]["properties"]["subnets"][0]["properties"]


def regular(s):
    return next(r for r in sets(s) if rules.is_regular(r))


def drop(s, kind, where=lambda r: True):
    s["resources"] = [r for r in s["resources"] if not (r["type"] == kind and where(r))]


def env(s, old, new):
    lines = vm(s)["osProfile"]["customData"]
    vm(s)["osProfile"]["customData"] = [line.replace(old, new) for line in lines]


def role_on(s, part):
    return next(r for r in of(s, ASSIGNMENT) if part in r["scope"] and "worker" in r["properties"]["description"])


PUBLIC = {"name": "public", "properties": {}}
TERMINATE = {"terminateNotificationProfile": {"enable": True, "notBeforeTimeout": "PT5M"}}

# Rule, snapshot, and a change that the rule must notice.
MUTATIONS = [
    ("spot_with_the_presets_eviction_policy", "elastic", lambda s: vm(s).update(priority="Regular")),
    ("spot_with_the_presets_eviction_policy", "balanced", lambda s: vm(s).update(priority="Low")),
    ("spot_with_the_presets_eviction_policy", "elastic", lambda s: vm(s).update(evictionPolicy="Deallocate")),
    ("spot_with_the_presets_eviction_policy", "steady", lambda s: vm(s).update(evictionPolicy="Delete")),
    (
        "spot_with_the_presets_eviction_policy",
        "steady-fleet",
        lambda s: of(s, FLEETS)[0]["properties"]["spotPriorityProfile"].pop("evictionPolicy"),
    ),
    (
        "no_public_address",
        "swap",
        lambda s: vm(s)["networkProfile"]["networkInterfaceConfigurations"][0]["properties"]["ipConfigurations"][0][
            "properties"
        ].update(publicIPAddressConfiguration=PUBLIC),
    ),
    ("no_public_address", "base", lambda s: drop(s, "Microsoft.Network/natGateways")),
    (
        "no_public_address",
        "steady",
        lambda s: s["resources"].append({"type": "Microsoft.Network/publicIPAddresses", "name": "x", "id": "x"}),
    ),
    (
        "flexible_sets_with_named_application",
        "elastic",
        lambda s: vm(s)["applicationProfile"]["galleryApplications"][0].update(packageReferenceId="…/versions/latest"),
    ),
    (
        "flexible_sets_with_named_application",
        "elastic",
        lambda s: vm(s)["applicationProfile"]["galleryApplications"][0].update(treatFailureAsDeploymentFailure=True),
    ),
    (
        "flexible_sets_with_named_application",
        "elastic",
        lambda s: vm(s)["diagnosticsProfile"]["bootDiagnostics"].update(enabled=False),
    ),
    (
        "flexible_sets_with_named_application",
        "elastic",
        lambda s: vm(s)["osProfile"]["linuxConfiguration"].update(disablePasswordAuthentication=False),
    ),
    ("flexible_sets_with_named_application", "elastic", lambda s: vm(s)["networkProfile"].pop("networkApiVersion")),
    (
        "flexible_sets_with_named_application",
        "elastic",
        lambda s: first(s)["properties"].update(orchestrationMode="Uniform"),
    ),
    ("flexible_sets_with_named_application", "elastic", lambda s: first(s)["properties"].pop("skuProfile")),
    (
        "flexible_sets_with_named_application",
        "elastic",
        lambda s: vm(s)["storageProfile"]["osDisk"].update(diffDiskSettings={"option": "Local"}),
    ),
    (
        "flexible_sets_with_named_application",
        "elastic",
        lambda s: first(s)["properties"]["skuProfile"].update(vmSizes=[{"name": "x"}] * 6),
    ),
    ("health_is_the_workers", "steady", lambda s: health(s)["settings"].update(port=8080)),
    ("health_is_the_workers", "steady", lambda s: health(s)["settings"].update(requestPath="/livez")),
    ("health_is_the_workers", "steady", lambda s: health(s).update(typeHandlerVersion="1.0")),
    ("health_is_the_workers", "steady", lambda s: health(s)["settings"].update(numberOfProbes=25)),
    ("health_is_the_workers", "steady-fleet", lambda s: env(s, "127.0.0.1:9090", "0.0.0.0:9090")),
    ("health_is_the_workers", "steady-fleet", lambda s: vm(s)["extensionProfile"].update(extensions=[])),
    ("repairs_replace", "elastic", lambda s: first(s)["properties"]["automaticRepairsPolicy"].update(enabled=False)),
    (
        "repairs_replace",
        "elastic",
        lambda s: first(s)["properties"]["automaticRepairsPolicy"].update(repairAction="Restart"),
    ),
    ("no_terminate_notification_on_spot", "elastic", lambda s: vm(s).update(scheduledEventsProfile=TERMINATE)),
    ("no_terminate_notification_on_spot", "steady-fleet", lambda s: vm(s).update(scheduledEventsProfile=TERMINATE)),
    ("no_terminate_notification_on_spot", "balanced", lambda s: vm(s).update(scheduledEventsProfile=TERMINATE)),
    ("no_terminate_notification_on_spot", "swap", lambda s: profile_of(regular(s)).pop("scheduledEventsProfile")),
    (
        "restore_outside_the_profile_and_without_autoscale",
        "steady",
        lambda s: vm(s).update(spotRestorePolicy=first(s)["properties"].pop("spotRestorePolicy")),
    ),
    (
        "restore_outside_the_profile_and_without_autoscale",
        "elastic",
        lambda s: first(s)["properties"].update(spotRestorePolicy={"enabled": True}),
    ),
    (
        "restore_outside_the_profile_and_without_autoscale",
        "steady",
        lambda s: first(s)["properties"].pop("spotRestorePolicy"),
    ),
    (
        "restore_outside_the_profile_and_without_autoscale",
        "steady",
        lambda s: vm(s)["billingProfile"].update(maxPrice=0.05),
    ),
    ("prices_are_numbers", "elastic-regions", lambda s: vm(s)["billingProfile"].update(maxPrice="0.05")),
    ("prices_are_numbers", "elastic", lambda s: vm(s)["billingProfile"].update(maxPrice=0)),
    ("prices_are_numbers", "swap", lambda s: profile_of(regular(s)).update(billingProfile={"maxPrice": -1})),
    (
        "compute_fleet_maintains",
        "steady-fleet",
        lambda s: of(s, FLEETS)[0]["properties"]["spotPriorityProfile"].update(maintain=False),
    ),
    (
        "compute_fleet_maintains",
        "steady-fleet",
        lambda s: of(s, FLEETS)[0]["properties"].update(vmSizesProfile=[{"name": "x"}]),
    ),
    ("compute_fleet_maintains", "steady-fleet", lambda s: drop(s, FLEETS)),
    ("balanced_has_a_regular_base", "balanced", lambda s: first(s)["properties"].pop("priorityMixPolicy")),
    ("balanced_has_a_regular_base", "balanced", lambda s: scale(s)["capacity"].update(minimum="0")),
    (
        "balanced_has_a_regular_base",
        "elastic",
        lambda s: first(s)["properties"].update(priorityMixPolicy={"baseRegularPriorityCount": 1}),
    ),
    ("swap_escalates_to_regular_vms", "swap", lambda s: drop(s, rules.SETS, rules.is_regular)),
    (
        "swap_escalates_to_regular_vms",
        "swap",
        lambda s: env(s, "REPRIEVE_ESCALATE_TO=work-escalated", "REPRIEVE_ESCALATE_TO=other"),
    ),
    ("swap_escalates_to_regular_vms", "elastic", lambda s: env(s, "REPRIEVE_QUEUE=work", "REPRIEVE_ESCALATE_TO=other")),
    ("swap_escalates_to_regular_vms", "base", lambda s: s["outputs"].update(REPRIEVE_QUEUES=["work"])),
    (
        "swap_escalates_to_regular_vms",
        "swap",
        lambda s: [
            r["metricTrigger"].update(metricResourceUri="/services/queue/queues/work")
            for x in of(s, SCALES)
            for r in x["properties"]["profiles"][0]["rules"]
        ],
    ),
    (
        "autoscale_begins_at_one_message_and_ends_at_none",
        "elastic",
        lambda s: last_rule(s)["metricTrigger"].update(threshold=2),
    ),
    (
        "autoscale_begins_at_one_message_and_ends_at_none",
        "elastic",
        lambda s: last_rule(s)["metricTrigger"].update(timeAggregation="Average"),
    ),
    (
        "autoscale_begins_at_one_message_and_ends_at_none",
        "elastic",
        lambda s: last_rule(s)["scaleAction"].update(value="19"),
    ),
    ("autoscale_begins_at_one_message_and_ends_at_none", "elastic", lambda s: scale(s)["rules"].pop()),
    ("autoscale_begins_at_one_message_and_ends_at_none", "elastic-regions", lambda s: scale(s)["rules"].pop()),
    (
        "autoscale_begins_at_one_message_and_ends_at_none",
        "elastic",
        lambda s: scale(s)["rules"][0]["metricTrigger"].update(threshold=1),
    ),
    (
        "autoscale_begins_at_one_message_and_ends_at_none",
        "elastic",
        lambda s: scale(s)["rules"][0]["scaleAction"].update(value="2"),
    ),
    (
        "autoscale_begins_at_one_message_and_ends_at_none",
        "elastic",
        lambda s: scale(s)["rules"][0]["metricTrigger"].update(dividePerInstance=True),
    ),
    (
        "autoscale_begins_at_one_message_and_ends_at_none",
        "elastic",
        lambda s: scale(s)["rules"][0]["scaleAction"].update(type="ChangeCount"),
    ),
    (
        "autoscale_begins_at_one_message_and_ends_at_none",
        "elastic",
        lambda s: scale(s)["capacity"].update(maximum="21"),
    ),
    (
        "autoscale_begins_at_one_message_and_ends_at_none",
        "elastic",
        lambda s: scale(s)["rules"].append(scale(s)["rules"][0]),
    ),
    ("autoscale_begins_at_one_message_and_ends_at_none", "elastic", lambda s: drop(s, SCALES)),
    (
        "autoscale_begins_at_one_message_and_ends_at_none",
        "swap",
        lambda s: drop(s, SCALES, lambda r: "regular" in r["name"]),
    ),
    (
        "autoscale_begins_at_one_message_and_ends_at_none",
        "steady",
        lambda s: s["resources"].append(
            {
                "type": SCALES,
                "id": "x",
                "name": "x",
                "properties": {
                    "enabled": True,
                    "targetResourceUri": "",
                    "profiles": scale(load("elastic")) and of(load("elastic"), SCALES)[0]["properties"]["profiles"],
                },
            }
        ),
    ),
    ("thresholds_and_maxima_are_shared", "elastic-regions", lambda s: scale(s)["capacity"].update(maximum="25")),
    (
        "thresholds_and_maxima_are_shared",
        "elastic-regions",
        lambda s: scale(s)["rules"][3]["metricTrigger"].update(threshold=41),
    ),
    ("capacity_is_kept", "elastic-regions", lambda s: first(s)["sku"].update(capacity=0)),
    ("capacity_is_kept", "balanced", lambda s: first(s)["sku"].update(capacity=1)),
    ("capacity_is_kept", "steady", lambda s: first(s)["sku"].update(capacity=5)),
    ("identities_match", "elastic", lambda s: first(s).pop("identity")),
    (
        "identities_match",
        "steady-fleet",
        lambda s: of(s, FLEETS)[0]["identity"].update(userAssignedIdentities={"other": {}}),
    ),
    ("identities_match", "elastic", lambda s: env(s, "AZURE_CLIENT_ID=", "AZURE_CLIENT_ID=0")),
    (
        "identities_match",
        "elastic",
        lambda s: vm(s)["extensionProfile"]["extensions"][1]["properties"]["settings"]["authentication"][
            "managedIdentity"
        ].update({"identifier-value": "other"}),
    ),
    (
        "identities_match",
        "base",
        lambda s: of(s, "Microsoft.Compute/galleries")[0]["identity"].update(userAssignedIdentities={"other": {}}),
    ),
    (
        "worker_may_renew_everywhere",
        "base",
        lambda s: role_on(s, "/queueServices/")["properties"].update(
            roleDefinitionId="…/8a0f0c08-91a1-4084-bc3d-661d67233fed"
        ),
    ),
    (
        "worker_may_renew_everywhere",
        "base",
        lambda s: drop(s, ASSIGNMENT, lambda r: r["scope"].endswith("/work-poison")),
    ),
    (
        "worker_may_renew_everywhere",
        "base",
        lambda s: drop(
            s, "Microsoft.Storage/storageAccounts/queueServices/queues", lambda r: r["name"].endswith("-poison")
        ),
    ),
    ("worker_may_renew_everywhere", "base", lambda s: role_on(s, "/queueServices/")["properties"].pop("principalType")),
    (
        "worker_may_renew_everywhere",
        "base",
        lambda s: drop(s, ASSIGNMENT, lambda r: "Uploads" in r["properties"]["description"]),
    ),
    (
        "worker_may_renew_everywhere",
        "base",
        lambda s: drop(s, ASSIGNMENT, lambda r: "copies" in r["properties"]["description"]),
    ),
    (
        "worker_may_renew_everywhere",
        "base",
        lambda s: role_on(s, "/containers/reprieve")["properties"].update(
            roleDefinitionId="…/2a2b9908-6ea1-4ae2-8e65-a410df84e7d1"
        ),
    ),
    (
        "worker_may_renew_everywhere",
        "base",
        lambda s: role_on(s, "/queueServices/").update(scope="/subscriptions/x/resourceGroups/y"),
    ),
    (
        "worker_may_renew_everywhere",
        "base-regions",
        lambda s: of(s, "Microsoft.Authorization/roleDefinitions")[0]["properties"]["permissions"][0][
            "dataActions"
        ].pop(1),
    ),
    ("roles_before_vms", "elastic", lambda s: first(s)["tags"].pop("queue-role-of")),
    ("roles_before_vms", "steady-fleet", lambda s: of(s, FLEETS)[0]["tags"].update({"container-role-of": "other"})),
    ("roles_before_vms", "base", lambda s: drop(s, ASSIGNMENT)),
    (
        "roles_before_vms",
        "swap",
        lambda s: s["resources"].append(
            {"type": "Microsoft.Storage/storageAccounts/queueServices/queues", "id": "x", "name": "x"}
        ),
    ),
    *[
        ("store_is_hardened", "base", lambda s, k=k, v=v: account(s).update({k: v}))
        for k, v in (
            ("allowSharedKeyAccess", True),
            ("allowBlobPublicAccess", True),
            ("minimumTlsVersion", "TLS1_0"),
            ("supportsHttpsTrafficOnly", False),
            ("defaultToOAuthAuthentication", False),
            ("allowCrossTenantReplication", True),
            ("isLocalUserEnabled", True),
            ("isHnsEnabled", True),
            ("allowedCopyScope", None),
        )
    ],
    ("store_is_hardened", "base", lambda s: account(s).pop("allowSharedKeyAccess")),
    ("store_is_hardened", "base", lambda s: account(s)["networkAcls"].update(defaultAction="Allow")),
    ("store_is_hardened", "base", lambda s: account(s)["networkAcls"].update(bypass="None")),
    (
        "store_is_hardened",
        "base",
        lambda s: of(s, ACCOUNT + "/blobServices")[0]["properties"].update(isVersioningEnabled=True),
    ),
    (
        "store_is_hardened",
        "base",
        lambda s: of(s, ACCOUNT + "/blobServices")[0]["properties"]["deleteRetentionPolicy"].update(enabled=True),
    ),
    (
        "store_is_hardened",
        "base",
        lambda s: of(s, ACCOUNT + "/blobServices/containers")[0]["properties"].update(publicAccess="Blob"),
    ),
    ("every_region_has_its_paths", "base", lambda s: subnet(s).pop("natGateway")),
    ("every_region_has_its_paths", "base", lambda s: subnet(s).update(serviceEndpoints=[])),
    ("every_region_has_its_paths", "base", lambda s: subnet(s).update(defaultOutboundAccess=True)),
    ("every_region_has_its_paths", "base", lambda s: subnet(s).pop("networkSecurityGroup")),
    ("every_region_has_its_paths", "base-closed", lambda s: account(s)["networkAcls"].update(virtualNetworkRules=[])),
    (
        "every_region_has_its_paths",
        "base-regions",
        lambda s: drop(s, "Microsoft.Network/privateEndpoints", lambda r: "queue" in r["name"]),
    ),
    (
        "every_region_has_its_paths",
        "base-regions",
        lambda s: drop(s, "Microsoft.Network/privateEndpoints", lambda r: "monitor" in r["name"]),
    ),
    (
        "every_region_has_its_paths",
        "base-regions",
        lambda s: drop(s, "Microsoft.Network/privateEndpoints/privateDnsZoneGroups"),
    ),
    (
        "every_region_has_its_paths",
        "base-regions",
        lambda s: of(s, "Microsoft.Network/virtualNetworks")[1]["properties"]["subnets"][1]["properties"].pop(
            "privateEndpointNetworkPolicies"
        ),
    ),
    ("every_region_has_its_paths", "elastic", lambda s: first(s).update(location="northeurope")),
    (
        "nothing_comes_in",
        "base",
        lambda s: of(s, "Microsoft.Network/networkSecurityGroups")[0]["properties"].update(securityRules=[]),
    ),
    (
        "nothing_comes_in",
        "base-regions",
        lambda s: of(s, "Microsoft.Network/networkSecurityGroups")[0]["properties"]["securityRules"][0][
            "properties"
        ].update(sourceAddressPrefix="*"),
    ),
    (
        "nothing_comes_in",
        "base-regions",
        lambda s: of(s, "Microsoft.Network/networkSecurityGroups")[0]["properties"]["securityRules"][0][
            "properties"
        ].update(destinationPortRange="*"),
    ),
    (
        "nothing_comes_in",
        "base",
        lambda s: of(s, "Microsoft.Network/networkSecurityGroups")[0]["properties"]["securityRules"].insert(
            0, of(s, "Microsoft.Network/networkSecurityGroups")[0]["properties"]["securityRules"][0]
        ),
    ),
    ("version_reaches_all_regions", "elastic-regions", lambda s: publishing(s)["targetRegions"].pop()),
    ("version_reaches_all_regions", "elastic", lambda s: publishing(s)["settings"].pop("packageFileName")),
    (
        "version_reaches_all_regions",
        "elastic",
        lambda s: publishing(s)["source"].update(mediaLink="https://x/y?sv=1&sig=2"),
    ),
    *[
        ("commands_are_the_packages", "steady", lambda s, a=a: publishing(s)["manageActions"].update({a: "./x.sh"}))
        for a in ("install", "update", "remove")
    ],
    ("commands_are_the_packages", "steady", lambda s: publishing(s)["manageActions"].pop("update")),
    *[
        ("first_boot_writes_the_settings", "swap", lambda s, k=k: env(s, k, "X"))
        for k in (
            "REPRIEVE_STORE=azure:",
            "REPRIEVE_QUEUE=work",
            "REPRIEVE_STATE_DIR=/run/reprieve",
            "REPRIEVE_CONCURRENCY=auto",
            "REPRIEVE_LOG_FORMAT=json",
            "REPRIEVE_INSTANCES=1",
            "MALLOC_MMAP_THRESHOLD_=1048576",
            "MALLOC_TRIM_THRESHOLD_=1048576",
            "REPRIEVE_ESCALATE_AFTER=3",
            "#cloud-config",
            '"0640"',
        )
    ],
    ("first_boot_writes_the_settings", "elastic-regions", lambda s: env(s, "frames-{0..1}", "frames")),
    ("everything_is_tagged", "base", lambda s: of(s, ACCOUNT)[0].pop("tags")),
    ("everything_is_tagged", "swap", lambda s: of(s, "Microsoft.Insights/workbooks")[0]["tags"].pop("deployment")),
    (
        "logs_have_a_way",
        "base",
        lambda s: of(s, "Microsoft.Insights/dataCollectionRules")[0]["properties"]["dataSources"]["syslog"][0].update(
            facilityNames=["daemon"]
        ),
    ),
    ("logs_have_a_way", "elastic", lambda s: drop(s, "Microsoft.Insights/dataCollectionRuleAssociations")),
    ("logs_have_a_way", "steady-fleet", lambda s: drop(s, "Microsoft.Authorization/policyAssignments")),
    ("logs_have_a_way", "elastic", lambda s: vm(s)["extensionProfile"]["extensions"].pop()),
    (
        "somebody_is_woken",
        "steady",
        lambda s: drop(s, "Microsoft.Insights/scheduledQueryRules", lambda r: "missing" in r["name"]),
    ),
    ("somebody_is_woken", "elastic", lambda s: drop(s, "Microsoft.Insights/diagnosticSettings")),
    (
        "somebody_is_woken",
        "balanced",
        lambda s: drop(s, "Microsoft.Insights/scheduledQueryRules", lambda r: "unserved" in r["name"]),
    ),
    ("somebody_is_woken", "elastic", lambda s: drop(s, "Microsoft.Consumption/budgets")),
]


class Rules(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.kept = {name: load(name) for name in FILES}

    def test_every_rule_holds(self):
        for rule in rules.ALL:
            with self.subTest(rule.__name__):
                self.assertEqual(list(rule(self.kept)), [])

    def test_every_rule_notices_what_it_is_for(self):
        by_name = {rule.__name__: rule for rule in rules.ALL}
        for i, (rule, name, change) in enumerate(MUTATIONS):
            with self.subTest(f"{i}: {rule} on {name}"):
                broken = copy.deepcopy(self.kept)
                change(broken[name])
                self.assertNotEqual(broken, self.kept, "the change changes nothing")
                self.assertNotEqual(list(by_name[rule](broken)), [], "the rule notices nothing")

    def test_every_rule_has_a_mutation(self):
        self.assertEqual({m[0] for m in MUTATIONS}, {r.__name__ for r in rules.ALL})


if __name__ == "__main__":
    unittest.main()
