"""The files beside the templates: descriptions, queries, workbook, first boot and the report. Needs no other tool."""

import datetime
import email.utils
import http.server
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import unittest

import workbook
from snapshots import INFRA, PRESETS
from test_bicep import require, sources

ROOT = INFRA.parent
QUERIES = {p.stem: p.read_text() for p in (INFRA / "monitoring" / "queries").glob("*.kql")}


def declarations(text):
    """Decorators and first line of each declaration of a Bicep file."""
    pending = []
    for line in text.splitlines():
        if line.startswith("@"):
            pending.append(line)
        elif re.match(r"(param|output|type|func|var|resource|module|metadata) ", line):
            yield line, "\n".join(pending)
            pending = []


class Templates(unittest.TestCase):
    def test_parameters_outputs_and_types_are_described(self):
        for path in sources():
            for line, decorators in declarations(path.read_text()) if path.suffix == ".bicep" else ():
                with self.subTest(f"{path.name}: {line}"):
                    exported = "@export()" in decorators
                    if line.startswith(("param ", "output ")) or exported:
                        self.assertRegex(decorators, r"@description\('.{8,}'\)")

    def test_members_of_types_are_described(self):
        for path in sources():
            text = path.read_text()
            for name, body in re.findall(r"^type (\w+) = \{\n(.*?)^\}", text, re.M | re.S):
                for member in re.finditer(r"^  ([\w*]+)\??: ", body, re.M):
                    before = body[: member.start()].rstrip().split("\n\n")[-1]
                    self.assertIn("@description(", before, f"{path.name}: {name}.{member[1]}")

    def test_durations_and_amounts_have_a_unit(self):
        """A description of a number or a duration says in what it is counted."""
        units = (
            "second|minute|hour|days|month|percent|gigabyte|GiB|ISO 8601|[Ii]nstances|VMs|[Nn]umber|Messages"
            "|interruptions|evictions|processes"
        )
        for path in (INFRA / "base.bicep", INFRA / "fleet.bicep"):
            for line, decorators in declarations(path.read_text()):
                if re.match(r"param \w+ int", line) or "PT1" in decorators:
                    self.assertRegex(decorators, units, line)

    def test_functions_use_their_parameters_only(self):
        """Bicep's functions can't read variables or parameters of the file. The offline checker does not know that."""
        for path in sources():
            text = path.read_text()
            names = set(re.findall(r"^(?:var|param|resource|module) (\w+)", text, re.M))
            for block in re.findall(r"^import \{(.*?)\} from", text, re.M | re.S):
                names |= {n.strip() for n in re.split(r"[,\n]", block) if n.strip()[:1].islower()}
            functions = set(re.findall(r"^func (\w+)", text, re.M))
            for name, params, body in re.findall(r"^func (\w+)\((.*?)\) \S+ =>(.*?)(?=\n\n|\Z)", text, re.M | re.S):
                own = {p.split()[0] for p in params.split(",")} | set(re.findall(r"(\w+) =>", body))
                # Properties and texts are not symbols.
                code = re.sub(r"'(?:[^'$]|\$(?!\{))*'", "''", re.sub(r"//.*", "", body))
                used = {w for w in re.findall(r"(?<![.\w'])([a-zA-Z]\w*)(?!\s*:)(?![\w'])", code)}
                self.assertEqual(used & names - own - functions, set(), f"{path.name}: {name}")

    def test_nothing_names_a_region_or_a_subscription(self):
        for path in [
            *INFRA.glob("*.bicep"),
            *INFRA.glob("modules/*.bicep"),
            *INFRA.glob("presets/*"),
            INFRA / "fleets.json",
        ]:
            code = re.sub(r"@description\(.*\)|//.*", "", path.read_text())
            self.assertNotRegex(code, r"westeurope|eastus|/subscriptions/[0-9a-f]")

    def test_all_linter_rules_are_on(self):
        rules = json.loads((INFRA / "bicepconfig.json").read_text())["analyzers"]["core"]["rules"]
        self.assertGreaterEqual(len(rules), 40)
        self.assertEqual({r["level"] for r in rules.values()}, {"warning"})

    def test_a_switched_off_rule_has_its_reason_in_the_line_before(self):
        for path in sources():
            lines = path.read_text().splitlines()
            for before, line in zip(lines, lines[1:]):
                if "#disable" in line:
                    self.assertTrue(before.strip().startswith("//"), f"{path.name}: {line}")

    def test_each_preset_has_a_file_of_its_name(self):
        self.assertEqual({p.stem for p in (INFRA / "presets").iterdir()}, set(PRESETS))
        for preset in PRESETS:
            self.assertIn(f"param preset = '{preset}'\n", (INFRA / "presets" / f"{preset}.bicepparam").read_text())

    def test_every_import_is_used(self):
        for path in sources():
            text = path.read_text()
            for block in re.findall(r"^import \{(.*?)\} from", text, re.M | re.S):
                for name in re.findall(r"\w+", block):
                    self.assertGreater(len(re.findall(rf"\b{name}\b", text)), 1, f"{path.name}: {name}")

    def test_commands_are_loaded_and_not_copied(self):
        text = (INFRA / "modules" / "application-version.bicep").read_text()
        for action in ("install", "update", "remove"):
            self.assertIn(f"{action}: loadTextContent('../package/commands/{action}.sh')\n", text)

    def test_presets_share_their_second_half(self):
        halves = {
            (INFRA / "presets" / f"{p}.bicepparam").read_text().split("// What all presets share.")[1] for p in PRESETS
        }
        self.assertEqual(len(halves), 1)

    def test_the_page_has_every_variable_preset_and_alert(self):
        page = (INFRA / "README.md").read_text()
        files = [p.read_text() for p in sources() if p.suffix == ".bicepparam" and "tests" not in p.parts]
        for name in {n for text in files for n in re.findall(r"readEnvironmentVariable\('(\w+)'", text)}:
            self.assertIn(f"`{name}`", page)
        for preset in PRESETS:
            self.assertRegex(page, rf"\n\| `{preset}` \|")
        alerts = re.findall(r"^    name: '([a-z-]+)'$", (INFRA / "modules" / "monitoring.bicep").read_text(), re.M)
        self.assertEqual(len(alerts), 7)
        for alert in alerts:
            self.assertIn(f"\n| `{alert}` |", page)
        for name in re.findall(
            r"`(\w+(?:Minutes|PerHour|Capacities|Ranges|Emails|Policy|Timeout|Gb|Role|SourcePrefix))`", page
        ):
            self.assertIn(
                f"param {name} ", "".join(p.read_text() for p in (INFRA / "base.bicep", INFRA / "fleet.bicep"))
            )

    def test_azd_finds_the_stages(self):
        text = (ROOT / "azure.yaml").read_text()
        self.assertIn("\n  path: infra\n  module: base\n", text)
        self.assertEqual(re.findall(r"run: \./infra/(\w+)", text), ["preflight", "deploy", "destroy"])


class Monitoring(unittest.TestCase):
    def test_the_workbook_has_the_kept_queries(self):
        file = INFRA / "monitoring" / "workbook.json"
        built = workbook.build(QUERIES)
        if os.environ.get("UPDATE_SNAPSHOTS") == "1":
            file.write_text(built)
        self.assertEqual(file.read_text(), built, "UPDATE_SNAPSHOTS=1 builds it again")

    def test_every_query_is_used(self):
        alerts = set(re.findall(r"queries/([a-z-]+)\.kql", (INFRA / "modules" / "monitoring.bicep").read_text()))
        shown = {name for _, name, _ in workbook.PARTS}
        self.assertEqual(set(QUERIES), alerts | shown)

    def test_alerts_compare_a_column_that_their_query_has(self):
        text = (INFRA / "modules" / "monitoring.bicep").read_text()
        found = re.findall(r"queries/([a-z-]+)\.kql'\)\n\s+column: '(\w+)'(?:.*\n)*?\s+dimension: '(\w*)'", text)
        self.assertEqual(len(found), 7)
        for query, column, dimension in found:
            self.assertRegex(QUERIES[query], rf"\b{column} = ")
            self.assertTrue(not dimension or f"{dimension} = " in QUERIES[query])

    def test_queries_ask_for_what_the_worker_logs(self):
        core = ROOT / "crates" / "reprieve-core" / "src" / "worker"
        rust = "\n".join(p.read_text() for p in core.rglob("*.rs"))
        drained = re.search(r"tracing::info!\(\s+notice = r\.notice,.*?\"drained\"", rust, re.S)[0]
        for query in ("drains", "drain-times", "abandoned-drains"):
            for field in set(re.findall(r"line\.(\w+)", QUERIES[query])) - {"message"}:
                self.assertRegex(drained, rf"\b{field} = ", f"{query}: {field}")
        for query in ("evictions", "evictions-by-hour"):
            self.assertIn("received a notice; draining", QUERIES[query])
        self.assertIn('"received a notice; draining"', rust)
        moving = re.search(r"tracing::warn!\([^;]*?\"moving a job to another queue\"", rust)[0]
        self.assertIn('"moving a job to another queue"', QUERIES["escalations"])
        for field in set(re.findall(r"line\.(\w+)", QUERIES["escalations"])) - {"message"}:
            self.assertRegex(moving, rf"\b{field}\b", f"escalations: {field}")

    def test_outcomes_are_what_the_counters_gained_in_the_time_that_is_shown(self):
        self.assertIn("more = case(not(same), 0.0, value >= before, value - before, value)\n", QUERIES["outcomes"])
        self.assertIn("order by Computer asc, counter asc, TimeGenerated asc\n", QUERIES["outcomes"])
        self.assertIn("same = prev(Computer) == Computer and prev(counter) == counter\n", QUERIES["outcomes"])

        def deliveries(rows):
            total, last = 0, None
            for row in sorted(rows):
                same = last is not None and last[:2] == row[:2]
                before = last[3] if last else None
                total += 0 if not same else row[3] - before if row[3] >= before else row[3]
                last = row
            return total

        # A worker of seven days with 100 an hour, the last hour, and one that began again after half of it.
        week = 7 * 24 * 60
        hour = range(week - 60, week + 1, 5)
        old = [("vm1", "completed", minute, 100 * minute / 60) for minute in hour]
        self.assertAlmostEqual(deliveries(old), 100)
        begins = [("vm2", "completed", minute, minute - (0 if minute < week - 30 else week - 30)) for minute in hour]
        self.assertAlmostEqual(deliveries(old + begins), 100 + 25 + 30)

    def test_microsofts_parser_accepts_every_query(self):
        folder = INFRA / "tests" / "kql"
        if not (folder / "node_modules").is_dir() and os.environ.get("INFRA_TESTS_NEED_KQL") != "1":
            print("\nSKIPPED, NOT CHECKED: the queries: run npm ci in infra/tests/kql", file=sys.stderr)
            self.skipTest("the parser is missing")
        command = ["node", str(folder / "check.js"), str(INFRA / "monitoring" / "queries")]
        done = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    def test_queries_ask_for_what_the_report_logs(self):
        report = (INFRA / "vm" / "report.py").read_text()
        for query in ("oldest-message", "poison", "queue-depth"):
            for field in set(re.findall(r"line\.(\w+)", QUERIES[query])):
                self.assertIn(f'"{field}"', report)
        self.assertIn("SyslogIdentifier=reprieve-report\n", (INFRA / "cloud-init.yaml").read_text())


class Costs(unittest.TestCase):
    def test_the_months_of_the_presets_follow_from_the_dated_parts(self):
        text = (INFRA / "README.md").read_text()

        def monthly(part):
            row = re.search(rf"(?m)^\| {part}.* \| .*?\$([0-9.]+) a month.* \| (.*) \|$", text)
            self.assertRegex(row[2], r"20\d\d", f"{part} has no date")
            return round(100 * float(row[1]))

        fixed = monthly("NAT gateway") + monthly("its public address")
        disk = monthly("a VM's disk")
        rows = []
        for preset in ("steady", "steady-fleet", "elastic", "balanced", "swap"):
            given = (INFRA / "presets" / f"{preset}.bicepparam").read_text()
            numbers = dict(re.findall(r"(?m)^param (\w+) = (\d+)$", given))
            most = int(numbers["instances"]) + int(numbers.get("escalationInstances", 0))
            least = most if preset.startswith("steady") else int(numbers.get("baseInstances", 0))
            vms = str(most) if least == most else f"{least} to {most}"
            idle, full = (f"${(fixed + n * disk) / 100:.2f}" for n in (least, most))
            rows.append(f"| `{preset}` | {vms} | {idle} | {full} |")
        table = "\n".join(rows)
        self.assertTrue(table in text, f"README.md must have this:\n{table}")


class FirstBoot(unittest.TestCase):
    def test_cloud_init_accepts_it(self):
        needed = os.environ.get("INFRA_TESTS_NEED_CLOUD_INIT") == "1"
        require(self, "cloud-init", shutil.which("cloud-init"), needed)
        done = subprocess.run(
            ["cloud-init", "schema", "-c", str(INFRA / "cloud-init.yaml")], capture_output=True, text=True
        )
        self.assertEqual((done.returncode, "Valid" in done.stdout), (0, True), done.stdout + done.stderr)

    def test_it_has_the_keys_that_it_means(self):
        """cloud-init ignores an unknown key at the top."""
        keys = re.findall(r"^([a-z_]+):", (INFRA / "cloud-init.yaml").read_text(), re.M)
        self.assertEqual(keys, ["write_files", "runcmd"])

    def test_systemd_accepts_the_report(self):
        require(self, "systemd-analyze", shutil.which("systemd-analyze"), needed=False)
        import tempfile

        text = (INFRA / "cloud-init.yaml").read_text()
        with tempfile.TemporaryDirectory() as folder:
            for name in ("reprieve-report.service", "reprieve-report.timer"):
                body = text.split(f"/etc/systemd/system/{name}\n")[1].split("content: |\n")[1]
                lines = []
                for line in body.splitlines():
                    if line and not line.startswith("      "):
                        break
                    lines.append(line[6:])
                with open(os.path.join(folder, name), "w", encoding="utf-8") as unit:
                    unit.write("\n".join(lines) + "\n")
            done = subprocess.run(
                ["systemd-analyze", "verify", os.path.join(folder, "reprieve-report.timer")],
                capture_output=True,
                text=True,
            )
            # An unknown key is reported, and is no failure.
            complaints = [line for line in done.stderr.splitlines() if folder in line or "reprieve-report" in line]
            self.assertEqual(complaints, [])

    def test_custom_data_fits(self):
        """Azure takes 64 KiB of base64."""
        size = (
            len((INFRA / "cloud-init.yaml").read_bytes())
            + 4 * len((INFRA / "vm" / "report.py").read_bytes()) // 3
            + 4096
        )
        self.assertLess(4 * size // 3, 65536)


class Azure(http.server.BaseHTTPRequestHandler):
    """What the report talks to: identity, queues and a worker."""

    protocol_version = "HTTP/1.1"
    inserted = None
    counts = {"work": 12, "work-poison": 1}
    asked = []
    moved = False

    def do_GET(self):
        Azure.asked.append((self.path, dict(self.headers)))
        headers, body, status = {}, "", 200
        if self.path.startswith("/metadata/identity/"):
            body = json.dumps({"access_token": "T0KEN"})
        elif "?comp=metadata" in self.path:
            name = self.path[1:].split("?")[0]
            if name in Azure.counts:
                headers["x-ms-approximate-messages-count"] = str(Azure.counts[name])
            else:
                status = 404
        elif "/messages?peekonly=true" in self.path:
            text = (
                # One that a worker has had, and released, and one that none has received.
                "<QueueMessage><MessageId>0</MessageId><InsertionTime>Mon, 01 Jan 2024 00:00:00 GMT</InsertionTime>"
                "<DequeueCount>2</DequeueCount></QueueMessage>"
                f"<QueueMessage><MessageId>1</MessageId><InsertionTime>{Azure.inserted}</InsertionTime>"
                "<DequeueCount>0</DequeueCount></QueueMessage>"
            )
            found = text if Azure.inserted else ""
            body = f"\ufeff<?xml version='1.0' encoding='utf-8'?><QueueMessagesList>{found}</QueueMessagesList>"
        elif self.path == "/metrics":
            body = METRICS
        if Azure.moved and not self.path.startswith("/metrics"):
            status, headers = 302, {"Location": "/stolen" + self.path}
        data = body.encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


METRICS = """# HELP reprieve_jobs Deliveries that ended.
# TYPE reprieve_jobs counter
reprieve_jobs_total{kind="frame",outcome="completed"} 17
reprieve_in_flight 4
reprieve_budget_left_seconds_bucket{le="1"} 3
reprieve_budget_left_seconds_sum 9.5
# EOF
"""


class Report(unittest.TestCase):
    def setUp(self):
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Azure)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        Azure.asked, Azure.moved = [], False
        Azure.inserted = email.utils.format_datetime(
            datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(minutes=5), usegmt=True
        )

    def tearDown(self):
        self.server.shutdown()
        self.server.server_close()

    def run_report(self, **changes):
        base = f"http://127.0.0.1:{self.server.server_port}"
        env = {
            "PATH": os.environ["PATH"],
            "REPRIEVE_STORE": "azure:account",
            "REPRIEVE_QUEUE": "work",
            "AZURE_CLIENT_ID": "client",
            "REPRIEVE_LISTEN": base.removeprefix("http://"),
            "REPORT_METADATA": base,
            "REPORT_QUEUES": base,
            "http_proxy": "http://127.0.0.1:1",
            **changes,
        }
        done = subprocess.run(
            [sys.executable, str(INFRA / "vm" / "report.py")], capture_output=True, text=True, env=env
        )
        return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr

    def test_it_reports_the_queue_and_the_metrics(self):
        code, lines, errors = self.run_report()
        self.assertEqual((code, errors), (0, ""))
        metrics, queue = lines
        self.assertAlmostEqual(queue.pop("oldest_s"), 300, delta=10)
        self.assertEqual(queue, {"report": "queue", "queue": "work", "messages": 12, "poisoned": 1})
        wanted = {
            'reprieve_jobs_total{kind="frame",outcome="completed"}': 17,
            "reprieve_in_flight": 4,
            "reprieve_budget_left_seconds_sum": 9.5,
        }
        self.assertEqual(metrics, {"report": "metrics", "values": wanted})

    def test_of_several_workers_it_says_that_one_reports(self):
        metrics, _ = self.run_report(REPRIEVE_INSTANCES="3")[1]
        self.assertEqual(metrics["one_of"], 3)
        self.assertNotIn("one_of", self.run_report(REPRIEVE_INSTANCES="1")[1][0])

    def test_it_signs_in_as_the_worker_and_takes_nothing_away(self):
        self.run_report()
        identity = next((p, h) for p, h in Azure.asked if "identity" in p)
        self.assertIn("client_id=client", identity[0])
        self.assertEqual(identity[1]["Metadata"], "true")
        for path, headers in Azure.asked:
            if "messages" in path or "comp=" in path:
                self.assertEqual(headers["Authorization"], "Bearer T0KEN")
                self.assertTrue("peekonly=true" in path or "comp=metadata" in path)

    def test_an_empty_queue_has_no_age(self):
        Azure.inserted = None
        self.assertEqual(self.run_report()[1][1]["oldest_s"], 0)

    def test_a_dead_worker_does_not_keep_the_queue_from_being_reported(self):
        code, lines, _ = self.run_report(REPRIEVE_LISTEN="127.0.0.1:1")
        self.assertEqual(
            (code, lines[1]["report"], lines[0]["report"], lines[0]["what"]), (1, "queue", "failed", "metrics")
        )

    def test_a_missing_queue_is_reported_and_the_metrics_still_are(self):
        code, lines, _ = self.run_report(REPRIEVE_QUEUE="other")
        self.assertEqual((code, [line["report"] for line in lines]), (1, ["metrics", "failed"]))

    def test_no_other_service_that_an_answer_names_gets_the_token(self):
        Azure.moved = True
        code, lines, _ = self.run_report()
        self.assertEqual((code, [line["report"] for line in lines]), (1, ["metrics", "failed"]))
        self.assertEqual([path for path, _ in Azure.asked if "stolen" in path], [])

    def test_it_also_reports_the_queue_of_the_escalated_jobs(self):
        lines = self.run_report(REPRIEVE_ESCALATE_TO="work")[1]
        self.assertEqual([line.get("queue") for line in lines], [None, "work", "work"])

    def test_it_knows_other_clouds(self):
        report = self.module()
        self.assertEqual(report.queue_endpoint("azure:a"), "https://a.queue.core.windows.net")
        china = report.queue_endpoint("azure:a?endpoint_suffix=core.chinacloudapi.cn")
        self.assertEqual(china, "https://a.queue.core.chinacloudapi.cn")

    def module(self):
        spec = importlib.util.spec_from_file_location("report", INFRA / "vm" / "report.py")
        report = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(report)
        return report

    def test_it_understands_the_names_of_several_queues(self):
        report = self.module()
        self.assertEqual(report.queues("work"), ["work"])
        self.assertEqual(report.queues("work-{0..2}"), ["work-0", "work-1", "work-2"])
        self.assertEqual(report.queues("a, b"), ["a", "b"])
        # As the worker reads them.
        self.assertEqual(report.queues("w-{07..10}"), ["w-07", "w-08", "w-09", "w-10"])
        for refused in ("w-{10..7}", "w-{0..3000000}"):
            with self.assertRaises(ValueError):
                report.queues(refused)

    def test_no_line_is_too_long_for_the_log(self):
        report = self.module()
        many = "\n".join(f'm{{kind="{"k" * 80}{i}"}} {i}' for i in range(300))
        lines = [json.dumps(line, separators=(",", ":")) for line in report.metric_reports(many)]
        self.assertEqual(sum(len(json.loads(line)["values"]) for line in lines), 300)
        self.assertLess(max(map(len, lines)), 8192)
        odd = "\n".join(f'm{{kind="{"é" * 200}{i}"}} {i}' for i in range(40)) + f'\nm{{kind="{"k" * 9000}"}} 1'
        lines = list(report.metric_reports(odd))
        self.assertEqual(sum(len(line["values"]) for line in lines), 40)
        self.assertLess(max(len(json.dumps(line)) for line in lines), 8192)


if __name__ == "__main__":
    unittest.main()
