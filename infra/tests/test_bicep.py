"""The templates: checked against Azure's types, evaluated, compared with kept snapshots, fed with wrong parameters.

Needs the offline checker, whose folder BICEPLINT names. Without it these tests are skipped, or fail where
INFRA_TESTS_NEED_BICEP=1; the same with the real compiler and INFRA_TESTS_NEED_COMPILER=1. UPDATE_SNAPSHOTS=1 rewrites
the snapshots."""

import copy
import json
import os
import re
import shutil
import subprocess
import sys
import unittest

import evaluator
from snapshots import FILES, INFRA, KEPT, readable, text

NEEDED = os.environ.get("INFRA_TESTS_NEED_BICEP") == "1"
NEED_COMPILER = os.environ.get("INFRA_TESTS_NEED_COMPILER") == "1"
UPDATE = os.environ.get("UPDATE_SNAPSHOTS") == "1"

# Types that the offline checker has no data for: spelled as in Azure's documentation, but not checked here.
UNKNOWN_TYPES = {
    "Microsoft.Authorization/policyAssignments@2024-04-01",
    "Microsoft.Consumption/budgets@2024-08-01",
    "Microsoft.Insights/privateLinkScopes@2021-07-01-preview",
    "Microsoft.Insights/privateLinkScopes/scopedResources@2021-07-01-preview",
    "Microsoft.Network/virtualNetworks/subnets@2025-05-01",
}
# Bicep's types say that a price is a whole number, and so does the checker's data. json() is the documented way around.
DECIMAL_PRICE = re.compile(
    r"virtualMachineScaleSets\(.*\)\.properties\.virtualMachineProfile\.billingProfile\.maxPrice: [\d.]+ is no int"
)


def require(test, what, present, needed=NEEDED):
    if present:
        return
    if needed:
        test.fail(f"{what} is needed here and missing")
    message = f"SKIPPED, NOT CHECKED: {test.id()}: {what} is missing"
    print(f"\n{'!' * 100}\n{message}\n{'!' * 100}", file=sys.stderr)
    test.skipTest(message)


def checker(test):
    require(test, "the offline checker (BICEPLINT)", evaluator.AVAILABLE)


def tool(name, *arguments, cwd=INFRA):
    command = [sys.executable, os.path.join(evaluator.FOLDER, name), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd)


def sources():
    found = [*INFRA.glob("*.bicep"), *INFRA.glob("modules/*.bicep"), *INFRA.glob("*.bicepparam")]
    return sorted([*found, *INFRA.glob("presets/*.bicepparam"), *INFRA.glob("tests/params/*.bicepparam")])


class Checked(unittest.TestCase):
    def test_templates_and_parameter_files_have_no_error_and_no_warning(self):
        checker(self)
        names = [str(p.relative_to(INFRA)) for p in sources()]
        self.assertGreaterEqual(len(names), 20)
        done = tool("check.py", "--types", os.path.join(evaluator.FOLDER, "azure-types.json"), *names)
        unknown, complaints = set(), []
        for line in done.stdout.splitlines():
            missing = re.search(r'BCP081: resource type "([^"]+)" has no types here', line)
            unknown.add(missing[1]) if missing else complaints.append(line)
        self.assertEqual(complaints, [])
        self.assertEqual(unknown, UNKNOWN_TYPES, "the list of types that are not checked is wrong")
        self.assertIn(" 0 errors", done.stderr)

    def test_evaluated_values_fit_the_types(self):
        checker(self)
        # The checker's deepcheck runs when it is imported; here only its function is wanted.
        source = open(os.path.join(evaluator.FOLDER, "deepcheck.py"), encoding="utf-8").read()
        scope = {}
        exec(source[: source.index("T = Types(sys.argv[1])")], scope)
        types = evaluator.checker.Types(os.path.join(evaluator.FOLDER, "azure-types.json"))
        for name, path in FILES.items():
            with self.subTest(name):
                resources, _ = evaluator.evaluate(str(INFRA / path))
                found, seen, unchecked = [], set(), set()
                for r in resources:
                    key = f"{r['type']}@{r['apiVersion']}"
                    self.assertNotIn(r["id"].lower(), seen, "declared twice")
                    seen.add(r["id"].lower())
                    known = types.low.get(key.lower())
                    if known is None:
                        unchecked.add(key)
                        continue
                    body = {k: v for k, v in r.items() if k not in ("type", "apiVersion", "scope", "id")}
                    body["name"] = body["name"].split("/")[-1]
                    scope["check"](
                        body, types.res[known]["body"], types, f"{r['type'].split('/')[-1]}({r['name']})", found
                    )
                self.assertEqual([f for f in found if not DECIMAL_PRICE.fullmatch(f)], [])
                self.assertLessEqual(unchecked, UNKNOWN_TYPES)

    def test_nothing_is_left_open_but_what_azure_makes_up(self):
        checker(self)
        for name, path in FILES.items():
            with self.subTest(name):
                for r in evaluator.evaluate(str(INFRA / path))[0]:
                    left = re.findall(r'"(\[[a-zA-Z]+\([^"]*\)\])"', json.dumps(r))
                    self.assertEqual(left, [], r["id"])


class Snapshots(unittest.TestCase):
    maxDiff = None

    def test_deployments_are_those_that_were_kept(self):
        checker(self)
        for name, path in FILES.items():
            with self.subTest(name):
                now = text(readable(*evaluator.evaluate(str(INFRA / path))))
                file = KEPT / f"{name}.json"
                if UPDATE:
                    file.write_text(now)
                self.assertTrue(file.is_file(), "no snapshot is kept; UPDATE_SNAPSHOTS=1 writes one")
                self.assertEqual(file.read_text(), now, f"{name} has changed; UPDATE_SNAPSHOTS=1 keeps it as it is now")

    def test_no_snapshot_is_left_over(self):
        self.assertEqual({p.stem for p in KEPT.glob("*.json")}, set(FILES))


FLEET = {"location": "westeurope", "sizes": ["Standard_D2as_v5"], "zones": [], "sharePercent": 100, "maxPrice": "-1"}


def fleet(**changes):
    return {**copy.deepcopy(FLEET), **changes}


HALVES = [fleet(sharePercent=50), fleet(location="northeurope", sharePercent=50)]
REGION = {"location": "westeurope", "addressPrefix": "10.64.0.0/16", "network": "natGateway"}

# Parameter file, what is wrong, and a part of the reason that must be given.
REFUSED = [
    ("elastic", {"fleets": []}, "the list is empty"),
    (
        "elastic",
        {"fleets": [fleet(sharePercent=60), fleet(location="northeurope", sharePercent=30)]},
        "add up to 90 percent, not to 100",
    ),
    ("elastic", {"fleets": [fleet(sharePercent=60), fleet(sharePercent=40)]}, "a region is listed twice"),
    (
        "elastic",
        {"fleets": [fleet(sharePercent=99), fleet(location="northeurope", sharePercent=1)], "instances": 5},
        "too few for the shares",
    ),
    *[
        ("elastic", {"fleets": [fleet(maxPrice=price)]}, "maxPrice is")
        for price in (
            "",
            "0",
            "0.00",
            "-2",
            "1,5",
            "0.123456",
            "abc",
            "1.",
            ".5",
            "007",
            "1.2.3",
            "-1.0",
            " 1",
            "1e3",
            "$1",
        )
    ],
    ("steady", {"fleets": [fleet(maxPrice="0.05")]}, "Azure restarts only what was evicted for capacity"),
    ("elastic", {"evictionPolicy": "Deallocate"}, "elastic does not work with Deallocate"),
    ("balanced", {"evictionPolicy": "Deallocate"}, "balanced does not work with Deallocate"),
    ("swap", {"evictionPolicy": "Deallocate"}, "swap does not work with Deallocate"),
    ("steady", {"evictionPolicy": "Delete"}, "a deleted one lowers the number of VMs for good"),
    ("steady", {"evictionPolicy": "Stop"}, "is not one of"),
    ("elastic", {"preset": "cheap"}, "is not one of"),
    ("elastic", {"instances": 0}, "is less than 1"),
    ("elastic", {"instances": 1001}, "is more than 1000"),
    ("elastic", {"baseInstances": 1}, "only the preset balanced"),
    ("elastic", {"regularPercentAboveBase": 10}, "only the preset balanced"),
    ("balanced", {"regularPercentAboveBase": 100}, "is more than 99"),
    *[
        ("elastic", changed, "only the preset swap has regular VMs")
        for changed in (
            {"terminateNotice": "PT5M"},
            {"escalationInstances": 3},
            {"escalationSize": "Standard_D2as_v5"},
            {"escalateAfter": 1},
        )
    ],
    ("steady", {"terminateNotice": "PT5M"}, "only the preset swap has regular VMs"),
    ("swap", {"restoreTimeout": "PT2H"}, "only the preset steady restarts"),
    ("balanced", {"baseInstances": 0}, "needs a base"),
    ("balanced", {"baseInstances": 20}, "must be smaller than instances"),
    ("balanced", {"fleets": HALVES, "instances": 3, "baseInstances": 2}, "leaves no room for a Spot VM"),
    ("elastic", {"queueShards": 5}, "ten rules at most"),
    ("steady", {"queueShards": 9}, "is more than 8"),
    ("elastic", {"applicationVersion": ""}, "Major.Minor.Patch"),
    ("elastic", {"applicationVersion": "1.0"}, "Major.Minor.Patch"),
    ("elastic", {"applicationVersion": "v1.0.0"}, "Major.Minor.Patch"),
    ("elastic", {"applicationVersion": "latest"}, "Major.Minor.Patch"),
    ("elastic", {"sshPublicKey": ""}, "not a public SSH key"),
    ("elastic", {"sshPublicKey": "-----BEGIN OPENSSH PRIVATE KEY-----"}, "not a public SSH key"),
    ("elastic", {"workerSettings": ["REPRIEVE_LEASE"]}, "NAME=VALUE"),
    ("elastic", {"name": "Demo"}, "lower-case"),
    ("elastic", {"name": "a-long-name"}, "is more than 9"),
    ("swap", {"terminateNotice": "PT20M"}, "is not one of"),
    ("steady", {"restoreTimeout": "PT24H"}, "is not one of"),
    ("base", {"regions": []}, "is less than 1"),
    ("base", {"regions": [REGION, {**REGION, "addressPrefix": "10.65.0.0/16"}]}, "a region is listed twice"),
    ("base", {"regions": [REGION, {**REGION, "location": "northeurope"}]}, "same addressPrefix"),
    ("base", {"regions": [{**REGION, "addressPrefix": "10.64.0.0/24"}]}, "must be a /16"),
    ("base", {"regions": [{**REGION, "network": "serviceEndpoints"}]}, "no log would reach the workspace"),
    (
        "base",
        {
            "regions": [
                {**REGION, "network": "privateEndpoints"},
                {"location": "northeurope", "addressPrefix": "10.65.0.0/16", "network": "privateEndpoints"},
            ]
        },
        "would share one private DNS zone",
    ),
    ("base", {"allowedIpRanges": ["203.0.113.7/32"]}, "write the address alone"),
    ("base", {"name": "Demo"}, "lower-case"),
    ("base", {"queueShards": 0}, "is less than 1"),
    *[("base", {"queue": name}, "queue: use lower-case") for name in ("Work_Q", "a--b", "-ab", "ab-", "a.b")],
    *[("elastic", {"queue": name}, "queue, container: use lower-case") for name in ("Work_Q", "a--b", "-ab", "ab-")],
    *[(stage, {"queue": "work-poison"}, "the queue of failed jobs") for stage in ("base", "elastic")],
    ("base", {"container": "My_Cont"}, "container: use lower-case"),
    ("base", {"container": "packages"}, "is the container of the packages"),
    ("elastic", {"container": "packages"}, "is the container of the packages"),
    *[("base", {"name": name}, "single hyphens inside") for name in ("-ab", "ab-", "a--b")],
    (
        "base",
        {"regions": [REGION, {**REGION, "location": "West Europe", "addressPrefix": "10.65.0.0/16"}]},
        "listed twice",
    ),
    *[
        ("base", {"regions": [{**REGION, "addressPrefix": prefix}]}, "must be a /16 of private")
        for prefix in ("foo/16", "10.64.1.0/16", "8.8.0.0/16", "10.300.0.0/16", "172.32.0.0/16")
    ],
    *[
        ("base", {"allowedIpRanges": [address]}, "public IPv4 address or range")
        for address in ("me", "10.0.0.4", "2001:db8::1", "1.2.3", "1.2.3.256", "1.2.3.4/33", "1.2.3.4/8/9", "01.2.3.4")
    ],
    *[
        ("base", {"allowedIpRanges": [address]}, "public IPv4 address or range")
        for address in ("0.0.0.0/0", "8.8.8.8/0", "8.0.0.0/7", "0.1.2.3", "127.0.0.1", "169.254.169.254", "100.64.0.1")
        + ("100.127.0.0/16", "224.0.0.1", "255.255.255.255")
    ],
    (
        "base",
        {"producers": [{"principalId": "00000000-0000-0000-0000-0000000000bb", "principalType": "User"}] * 2},
        "object id is listed twice",
    ),
    *[("base", {"sshSourcePrefix": prefix}, "a private IPv4 range") for prefix in ("*", "Internet", "0.0.0.0/0")],
    ("base", {"logQuotaGb": 0}, "would drop all logs"),
    ("base", {"logRetentionDays": 29}, "is less than 30"),
    ("base", {"tags": {f"t{i}": "x" for i in range(41)}}, "at most 40"),
    ("elastic", {"fleets": [fleet(sizes=["Standard_D2as_v5", "standard_d2as_v5"])]}, "listed twice"),
    ("elastic", {"fleets": [fleet(zones=["1", "1"])]}, "listed twice"),
    ("elastic", {"fleets": [fleet(zones=["x"])]}, 'zones are "1"'),
    ("elastic", {"fleets": [fleet(sizes=["D2as"])]}, "such as Standard_D2as_v5"),
    ("swap", {"escalationSize": "x"}, "such as Standard_D2as_v5"),
    ("elastic", {"fleets": [fleet(sizes=["Standard_NC4as_T4_v3", "Standard_L8s_v3"])]}, "families A, B, D, E and F"),
    ("elastic", {"fleets": [fleet(sizes=["Standard_D2ps_v5", "Standard_D2as_v5"])]}, "have ARM processors"),
    (
        "elastic",
        {"fleets": [HALVES[0], {**HALVES[1], "sizes": ["Standard_B2pls_v2"]}]},
        "have ARM processors",
    ),
    ("elastic", {"fleets": [fleet(), fleet(location="West Europe")]}, "a region is listed twice"),
    ("elastic", {"fleets": [fleet(maxPrice="99999999999999999999")]}, "maxPrice is"),
    *[("elastic", {"applicationVersion": v}, "Major.Minor.Patch") for v in ("99999999999.0.0", "01.2.3")],
    *[
        ("elastic", {"sshPublicKey": key}, "not a public SSH key")
        for key in (
            "ssh-rsa ",
            "ssh-rsa AAAA",
            "ecdsa-sha2-nistp256 AAAAE2VjZHNh",
            "ssh-rsa AAAAB3NzaC1yc2EAAAADAQAB\nssh-rsa AAAAB3NzaC1yc2EAAAADAQAB",
            "ssh-rsa AAAAB3NzaC1yc2EAAAADAQAB%",
            "ssh-ed25519 AAAAB3NzaC1yc2EAAAADAQAB",
        )
    ],
    *[("elastic", {"adminUsername": name}, "the name is taken") for name in ("root", "test", "guest", "Admin")],
    *[("elastic", {"adminUsername": name}, "begin with a letter") for name in ("my admin", "1user", "Me")],
    (
        "elastic",
        {"image": {"publisher": "MicrosoftWindowsServer", "offer": "WindowsServer", "sku": "2022", "version": "latest"}},
        "for Linux",
    ),
    *[
        ("elastic", {"workerSettings": [line]}, "NAME=VALUE")
        for line in ("=x", "FOO BAR=1", "A=b\r", "A=b\nC=d", "A=b\\", 'A="b', "A='b", "#A=b")
    ],
    ("elastic", {"fleets": [fleet(sizes=["Standard_DC2as_v5", "Standard_D2as_v5"])]}, "families A, B, D, E and F"),
    *[
        ("elastic", {"workerSettings": [line]}, "follow from other parameters")
        for line in ("REPRIEVE_LISTEN=0.0.0.0:9091", "REPRIEVE_ESCALATE_TO=slow", "REPRIEVE_ESCALATE_AFTER=1")
    ],
    *[
        ("elastic", {"workerSettings": [f"REPRIEVE_BUDGET={budget}"]}, "the unit stops a worker after 25 seconds")
        for budget in ("21s", "1m", "20", "s", "", "20ss", "1s0s", "'30s'")
    ],
    ("elastic", {"associateByPolicy": True, "collectLogs": False}, "there is no collection rule"),
    ("elastic", {"privateRegions": ["northeurope"]}, "each is the region of a fleet"),
    *[
        ("elastic", {"contactEmails": [address]}, "contactEmails")
        for address in ("nobody", "@example.com", "ops@", "ops@example", "ops@@example.com", "a b@example.com", "ops@.com")
    ],
    *[
        ("elastic", {"budgetStart": day}, "first day of a month")
        for day in ("2026-11-15", "2026-13-01", "2026-00-01", "yyyy-11-01", "2026/11-01", "26-11-01")
    ],
]
# What must not be refused.
ACCEPTED = [
    *[("elastic", {"fleets": [fleet(maxPrice=price)]}) for price in ("-1", "0.05", "0.00001", "1", "10", "12.34567")],
    ("steady-fleet", {"fleets": [fleet(maxPrice="0.05")]}),
    ("steady-fleet", {"evictionPolicy": "Deallocate"}),
    ("steady", {"queueShards": 8}),
    ("elastic", {"queueShards": 4}),
    ("elastic", {"instances": 1}),
    ("elastic", {"fleets": [fleet(sizes=["Standard_D2ps_v5", "Standard_D2pds_v6"])]}),
    ("elastic", {"workerSettings": ["REPRIEVE_LEASE=2m", "A=", 'B="c d"', "C=it\\s", "REPRIEVE_CONCURRENCY=4"]}),
    ("elastic", {"sshPublicKey": "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABgQC+/a== me@example.com (a comment)"}),
    ("elastic", {"workerSettings": ["REPRIEVE_BUDGET=20s"]}),
    ("elastic", {"privateRegions": ["", "West Europe"]}),
    ("elastic", {"fleets": [fleet(sizes=["Standard_DC2as_v5"])]}),
    ("elastic", {"budgetStart": "2026-11-01"}),
    ("elastic", {"contactEmails": ["o'hara+ops@mail.example.com"]}),
    ("elastic", {"queue": "poison-work"}),
    ("balanced", {"regularPercentAboveBase": 99}),
    ("swap", {"terminateNotice": "PT5M", "escalationSize": "Standard_D2as_v5", "escalateAfter": 1}),
    ("base", {"allowedIpRanges": ["203.0.113.7", "203.0.113.0/24", "172.32.0.1", "8.0.0.0/8", "100.63.0.1", "223.255.0.0/16"]}),
    ("base", {"sshSourcePrefix": "172.31.0.0/24"}),
    ("balanced", {"fleets": HALVES, "instances": 20, "baseInstances": 3}),
    (
        "steady",
        {
            "fleets": [
                fleet(sharePercent=33),
                fleet(location="a", sharePercent=33),
                fleet(location="b", sharePercent=34),
            ],
            "instances": 7,
        },
    ),
]


class Parameters(unittest.TestCase):
    def test_wrong_ones_are_refused_with_the_reason(self):
        checker(self)
        for name, changes, reason in REFUSED:
            with self.subTest(f"{name} {changes}"):
                with self.assertRaises(evaluator.Refused) as refused:
                    evaluator.evaluate(str(INFRA / FILES[name]), overrides=changes)
                self.assertIn(reason, str(refused.exception))

    def test_right_ones_are_not(self):
        checker(self)
        for name, changes in ACCEPTED:
            with self.subTest(f"{name} {changes}"):
                evaluator.evaluate(str(INFRA / FILES[name]), overrides=changes)

    def test_a_compute_fleet_behind_private_endpoints_is_told_where_its_logs_go(self):
        checker(self)
        for regions, wanted in (([], {"dataCollectionRules"}), ([""], {"dataCollectionRules", "dataCollectionEndpoints"})):
            resources, _ = evaluator.evaluate(str(INFRA / FILES["steady-fleet"]), overrides={"privateRegions": regions})
            policies = [r["properties"] for r in resources if r["type"].endswith("/policyAssignments")]
            kinds = {p["parameters"]["resourceType"]["value"].rpartition("/")[2] for p in policies}
            self.assertEqual((kinds, len(policies)), (wanted, len(wanted)))
            for policy in policies:
                named = policy["parameters"]
                self.assertIn(named["resourceType"]["value"].lower(), named["dcrResourceId"]["value"].lower())
            grants = [
                (r["properties"]["principalId"], r["properties"]["roleDefinitionId"])
                for r in resources
                if r["type"].endswith("/roleAssignments")
            ]
            self.assertEqual(len(set(grants)), 2 * len(wanted))

    def test_all_problems_are_given_at_once(self):
        checker(self)
        wrong = {
            "fleets": [fleet(sharePercent=60, maxPrice="x")],
            "applicationVersion": "1",
            "evictionPolicy": "Deallocate",
        }
        with self.assertRaises(evaluator.Refused) as refused:
            evaluator.evaluate(str(INFRA / FILES["elastic"]), overrides=wrong)
        for part in ("60 percent", "maxPrice", "Major.Minor.Patch", "Deallocate"):
            self.assertIn(part, str(refused.exception))

    def test_shares_of_odd_numbers_add_up(self):
        checker(self)
        three = [fleet(sharePercent=33), fleet(location="a", sharePercent=33), fleet(location="b", sharePercent=34)]
        for total in (3, 7, 10, 99, 100):
            resources, _ = evaluator.evaluate(
                str(INFRA / FILES["steady"]), overrides={"fleets": three, "instances": total}
            )
            sizes = [r["sku"]["capacity"] for r in resources if r["type"].endswith("/virtualMachineScaleSets")]
            self.assertEqual(sum(sizes), total)
            self.assertLessEqual(max(sizes) - min(sizes), 2)

    def autoscale(self, **wanted):
        resources, _ = evaluator.evaluate(str(INFRA / FILES["elastic"]), overrides=wanted)
        (scale,) = [r for r in resources if r["type"].endswith("/autoscalesettings")]
        return scale["properties"]["profiles"][0]

    def test_autoscale_has_ten_rules_at_most_and_rising_steps(self):
        checker(self)
        for instances in (1, 2, 3, 8, 9, 10, 11, 20, 1000):
            for shards in (1, 2, 3, 4):
                profile = self.autoscale(instances=instances, queueShards=shards)
                rules = profile["rules"]
                self.assertLessEqual(len(rules), 10)
                # All rules are used where there is something between.
                if instances >= 11 - 2 * shards:
                    self.assertGreaterEqual(len(rules), 9, (instances, shards))
                steps = steps_of(profile)
                self.assertEqual(steps[0], (0, 1))
                self.assertEqual(steps[-1][1], instances)
                self.assertEqual(steps, sorted(set(steps)))

    def test_a_base_of_regular_vms_counts_as_vms_that_are_there(self):
        checker(self)
        wanted = {"instances": 100, "baseInstances": 20}
        resources, _ = evaluator.evaluate(str(INFRA / FILES["balanced"]), overrides=wanted)
        (scale,) = [r for r in resources if r["type"].endswith("/autoscalesettings")]
        steps = steps_of(scale["properties"]["profiles"][0])
        self.assertEqual((steps[0], steps[-1][1]), ((40, 21), 100))
        self.assertLess(max((after - 1) / before for (_, before), (_, after) in zip(steps, steps[1:])), 1.25)

    def test_the_readme_says_how_many_vms_too_few_there_may_be(self):
        checker(self)
        rows = ["| `instances` | 1 queue | 2 queues | 3 queues | 4 queues |", "|---|---|---|---|---|"]
        for instances in (10, 20, 50, 100, 1000):
            cells = []
            for shards in (1, 2, 3, 4):
                profile = self.autoscale(instances=instances, queueShards=shards)
                vms = ", ".join(str(n) for _, n in steps_of(profile))
                cells.append(f"{worst(profile, instances, 2, shards):.1f} ({vms})")
            rows.append(f"| {instances} | {' | '.join(cells)} |")
        table = "\n".join(rows)
        self.assertTrue(table in (INFRA / "README.md").read_text(), f"README.md must have this:\n{table}")


def steps_of(profile):
    """The messages of the first queue above which there are so many VMs, and the VMs."""
    rules = profile["rules"]
    first = rules[0]["metricTrigger"]["metricResourceUri"]
    return [
        (rule["metricTrigger"]["threshold"], int(rule["scaleAction"]["value"]))
        for rule in rules
        if rule["scaleAction"]["direction"] == "Increase" and rule["metricTrigger"]["metricResourceUri"] == first
    ]


def worst(profile, instances, jobs, shards):
    """How many times the VMs that there are the messages would need, at worst."""
    steps, found = steps_of(profile), 1
    for messages in range(1, instances * jobs + 1):
        there = max(vms for threshold, vms in steps if messages / shards > threshold)
        found = max(found, -(-messages // jobs) / there)
    return found


class Regions(unittest.TestCase):
    def test_names_of_regions_are_written_as_azure_does(self):
        checker(self)
        for name, changes in (
            ("base", {"regions": [{**REGION, "location": "West Europe"}]}),
            ("elastic", {"fleets": [fleet(location="West Europe")]}),
        ):
            for r in evaluator.evaluate(str(INFRA / FILES[name]), overrides=changes)[0]:
                self.assertNotIn(" ", r["name"], r["type"])
                self.assertIn(r.get("location", "global"), ("westeurope", "global"), r["name"])

    def test_zones_are_balanced_where_there_are_several(self):
        checker(self)
        for zones, balance in (([], None), (["1"], None), (["1", "2"], False)):
            for preset in ("steady", "elastic", "balanced", "swap"):
                wanted = {"fleets": [fleet(zones=zones)]}
                for r in evaluator.evaluate(str(INFRA / FILES[preset]), overrides=wanted)[0]:
                    if r["type"].endswith("virtualMachineScaleSets"):
                        self.assertEqual(r["properties"].get("zoneBalance"), balance, (preset, zones))


class Compiler(unittest.TestCase):
    """The real compiler, where it is installed."""

    def bicep(self, *arguments):
        done = subprocess.run(
            ["bicep", *arguments],
            capture_output=True,
            text=True,
            cwd=INFRA,
            env={**os.environ, **evaluator.ENVIRONMENT},
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stderr

    def test_templates_build(self):
        require(self, "bicep on PATH", shutil.which("bicep"), NEED_COMPILER)
        for name in ("base.bicep", "fleet.bicep"):
            self.assertNotIn("Warning", self.bicep("build", name, "--stdout"))

    def test_templates_pass_the_linter(self):
        require(self, "bicep on PATH", shutil.which("bicep"), NEED_COMPILER)
        for name in ("base.bicep", "fleet.bicep"):
            self.bicep("lint", name)

    def test_parameter_files_build(self):
        require(self, "bicep on PATH", shutil.which("bicep"), NEED_COMPILER)
        for path in FILES.values():
            self.bicep("build-params", path, "--stdout")


if __name__ == "__main__":
    unittest.main()
