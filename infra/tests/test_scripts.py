"""preflight, deploy, update and destroy, with a stand-in for az that keeps its state in a file (`az` beside this).

REPRIEVE_REAL_AZ=PATH also compares the stand-in's commands and flags with those of a real azure-cli, without a login.
"""

import atexit
import concurrent.futures
import functools
import hashlib
import importlib.machinery
import importlib.util
import io
import json
import os
import pathlib
import re
import shutil
import signal
import socketserver
import subprocess
import sys
import tarfile
import tempfile
import threading
import unittest
import unittest.mock

import evaluator
from test_bicep import require

# bash can't catch a signal that was ignored when it began, as SIGINT is in what a shell starts in the background.
for ignored in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
    if signal.getsignal(ignored) == signal.SIG_IGN:
        signal.signal(ignored, signal.SIG_DFL)

INFRA = pathlib.Path(__file__).resolve().parent.parent
SCRIPTS = ["preflight", "deploy", "update", "destroy"]
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIExample operator"
ADDRESS = "203.0.113.7"
# A failure of these is reported, and stops nothing.
OPTIONAL = {"bicep version", "storage queue list", "storage message peek"}
CHANGES = {
    "group create",
    "deployment group create",
    "storage blob upload",
    "resource delete",
    "group delete",
    "provider register",
}

FRESH = {
    "az": "2.91.0",
    "signed_in": True,
    "may_assign": True,
    "may_peek": True,
    "address": ADDRESS,
    "denials": 0,
    "clock": 0,
    "groups": {},
    "unregistered": [],
    "not_offered": [],
    "restrictions": {},
    "quota": {},
    "bad": [],
    "unhealthy": [],
    "evicted": [],
    "deallocated": [],
}

# The stand-in runs in this process: starting Python for each call would take most of the tests' time.
AZ = """#!/bin/bash
# The real one catches SIGINT, and returns 1.
trap '' INT TERM HUP
[[ -z ${AZ_HANG_AT:-} ]] || trap - TERM
exec 3<>"/dev/tcp/127.0.0.1/$AZ_PORT"
{
  printf '%s\\0' "$$" "$PWD" "$#" "$@"
  for name in "${!AZ@}" "${!REPRIEVE_@}"; do printf '%s=%s\\0' "$name" "${!name}"; done
  printf 'END\\0'
} >&3
read -r code size <&3
IFS= read -r -d '' text <&3
printf '%s' "${text:0:size}"
printf '%s' "${text:size}" >&2
exit "$code"
"""
# The same for the questions about az's answers, in `questions.py`.
PYTHON = """#!/bin/bash
LC_ALL=C
text=
[[ ! -f /dev/stdin ]] || text=$(</dev/stdin)
exec 3<>"/dev/tcp/127.0.0.1/$PYTHON_PORT"
printf '%s\\0' "$text" "$PWD" "$@" END >&3
read -r code size <&3
IFS= read -r -d '' text <&3
printf '%s' "${text:0:size}"
printf '%s' "${text:size}" >&2
exit "${code:-1}"
"""
SLEEP = '#!/bin/sh\necho "$1" >>"$SLEEPS"\n'
CARGO = '#!/bin/sh\necho "$@" >>"$CARGO_LOG"\necho "0000  $CARGO_PACKAGE"\n'


# Flags of az that have a path.
FILES = {"--file", "--parameters"}


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        received = b""
        while not received.endswith(b"\0END\0"):
            more = self.request.recv(1 << 16)
            if not more:
                return
            received += more
        pid, folder, count, *rest = received.decode().split("\0")[:-2]
        arguments, environment = rest[: int(count)], dict(line.split("=", 1) for line in rest[int(count) :])
        # Like a process of its own, it takes paths from the folder of its caller.
        arguments = [os.path.join(folder, a) if b in FILES else a for b, a in zip(["", *arguments], arguments)]
        code, out, error = stand_in().run(arguments, environment, int(pid))
        self.request.sendall(f"{code} {len(out)}\n{out}{error}".encode())


@functools.cache
def stand_in():
    return load("stand_in", INFRA / "tests" / "az")


@functools.cache
def port():
    socketserver.ThreadingTCPServer.daemon_threads = True
    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
    server.request_queue_size = 64
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


@functools.cache
def python_port():
    command = [sys.executable, str(INFRA / "tests" / "questions.py")]
    files = [str(INFRA / name) for name in ("answers.py", "findings.py")]
    # Ends with this process, which has the other end of its stdin.
    server = subprocess.Popen([*command, *files], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    atexit.register(server.communicate)
    return int(server.stdout.readline())


class Cloud:
    """A subscription, and a machine from which the scripts are run."""

    def __init__(self, test, **changes):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="reprieve-scripts-"))
        test.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        bin_folder = self.folder / "bin"
        bin_folder.mkdir()
        for name, text in (("az", AZ), ("sleep", SLEEP), ("cargo", CARGO), ("python3", PYTHON)):
            (bin_folder / name).write_text(text)
            (bin_folder / name).chmod(0o755)
        (self.folder / "tmp").mkdir()
        self.state_file = self.folder / "state.json"
        self.state = {**FRESH, **changes}
        self.calls = []
        self.sleeps = []

    @property
    def state(self):
        return json.loads(self.state_file.read_text())

    @state.setter
    def state(self, state):
        self.state_file.write_text(json.dumps(state))

    def have_fleet(self):
        """As after `deploy`, whose end is the same each time."""
        state = self.state
        self.state = {**state, "groups": {**state["groups"], **deployed()["groups"]}, "clock": deployed()["clock"]}

    def package(self, version, content=b"worker"):
        """Writes a package as `cargo xtask package` does, as far as the scripts look into it."""
        path = self.folder / f"worker-{version}-{hashlib.sha256(content).hexdigest()[:6]}.tgz"
        # Without compression: gzip has the time in it, and the same version must give the same bytes.
        with tarfile.open(path, "w") as archive:
            manifest = json.dumps({"name": "reprieve-worker", "version": version}).encode()
            for name, data in (("bin/worker", content), ("manifest.json", manifest)):
                member = tarfile.TarInfo(name)
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
        return str(path)

    def run(self, script, *arguments, stdin="", infra=INFRA, **env):
        log, sleeps = self.folder / "calls", self.folder / "sleeps"
        for file in (log, sleeps):
            file.write_text("")
        environment = {
            "PATH": f"{self.folder / 'bin'}:/usr/bin:/bin",
            "HOME": str(self.folder),
            "TMPDIR": str(self.folder / "tmp"),
            "AZ_STATE": str(self.state_file),
            "AZ_LOG": str(log),
            "AZ_PORT": str(port()),
            "PYTHON_PORT": str(python_port()),
            "PWD": str(self.folder),
            "SLEEPS": str(sleeps),
            "CARGO_LOG": str(self.folder / "cargo"),
            "REPRIEVE_SSH_PUBLIC_KEY": KEY,
            "CARGO_TARGET_DIR": str(self.folder),
            **env,
        }
        # Its own process group, which the stand-in kills as a whole.
        done = subprocess.run(
            [str(infra / script), *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            cwd=self.folder,
            env={k: v for k, v in environment.items() if v is not None},
            start_new_session=True,
            timeout=60,
        )
        self.calls = log.read_text().splitlines()
        self.sleeps = [int(line) for line in sleeps.read_text().splitlines()]
        return done

    def deploy(self, version="1.0.0", *arguments, content=b"worker", **env):
        return self.run(
            "deploy",
            "--location",
            "westeurope",
            "--package",
            self.package(version, content),
            "--allow-ip",
            ADDRESS,
            *arguments,
            **env,
        )

    def group(self, name="rg-reprieve-demo"):
        return self.state["groups"][name]

    def of_type(self, kind):
        return [r for r in self.group()["resources"].values() if r["type"] == kind]

    def end(self):
        """What exists in the end, without what differs between an undisturbed run and another."""
        groups = self.state["groups"]
        for group in groups.values():
            for deployment in group["deployments"].values():
                deployment["time"] = deployment["polls"] = 0
                # The last deployment's state is only asked for by the next run.
                deployment["state"] = "Succeeded"
            for vm in group["vms"].values():
                vm["seen"] = 0
        return json.dumps(groups, sort_keys=True)

    def grow(self, capacity):
        """Autoscale adds VMs to the set."""
        state = self.state
        [group] = state["groups"].values()
        [found] = [r for r in group["resources"].values() if r["type"].endswith("virtualMachineScaleSets")]
        found["capacity"] = capacity
        for i in range(capacity):
            group["vms"][f"{found['name']}_{i:08x}"] = {
                "set": found["name"],
                "tags": found["tags"],
                "installed": found["tags"]["application-version"],
                "seen": 0,
            }
        self.state = state


@functools.cache
def deployed():
    keeper = unittest.TestCase()
    cloud = Cloud(keeper)
    done = cloud.deploy(REPRIEVE_CONTACT_EMAILS="ops@example.com")
    keeper.assertEqual(done.returncode, 0, done.stderr)
    state = cloud.state
    keeper.doCleanups()
    return state


def last_line(done):
    return done.stderr.strip().splitlines()[-1] if done.stderr.strip() else ""


class Case(unittest.TestCase):
    def succeeds(self, done):
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done

    def fails(self, done, pattern, code=1):
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertRegex(last_line(done), rf"^\w+: .*{pattern}.*\.$")
        self.assertNotIn("Traceback", done.stderr)
        return done


# ----------------------------------------------------------------- cut and run again


def deploy_first(cloud, **env):
    return cloud.deploy(**env)


def deploy_again(cloud, **env):
    """With a set that autoscale has enlarged, another version, and nothing else than the first time."""
    return cloud.run("deploy", "--package", cloud.package("1.0.1"), REPRIEVE_SSH_PUBLIC_KEY=None, **env)


def update(cloud, **env):
    return cloud.run("update", "--package", cloud.package("1.0.1"), **env)


def update_to_a_bad_version(cloud, **env):
    return cloud.run("update", "--package", cloud.package("1.0.2"), "--rollback", **env)


def destroy(cloud, **env):
    return cloud.run("destroy", "--yes", **env)


def destroy_fleet(cloud, **env):
    return cloud.run("destroy", "--yes", "--keep-data", **env)


def preflight(cloud, **env):
    return cloud.run("preflight", "--location", "westeurope", "--register", **env)


def nothing(_):
    pass


def enlarged(cloud):
    cloud.have_fleet()
    cloud.grow(7)


# What is run, on what, with which code it ends, and whether it is disturbed at every call. The others are disturbed at
# those that change something: what they ask before is what another journey of the same script asks.
JOURNEYS = [
    (preflight, nothing, 0, True),
    (deploy_first, nothing, 0, True),
    (deploy_again, enlarged, 0, False),
    (update, enlarged, 0, False),
    (update_to_a_bad_version, enlarged, 1, True),
    (destroy, enlarged, 0, True),
    (destroy_fleet, enlarged, 0, True),
]


# Signals of which a script ends with a sentence of its own, and its exit codes.
STOPPED = {"INT": 130, "TERM": 143, "HUP": 129}


class Disturbed(Case):
    """Every script, disturbed at each of its calls in turn."""

    def start(self, prepared):
        cloud = Cloud(self)
        cloud.state = prepared
        return cloud

    def disturb(self, journey, prepared, fault, when, at, command):
        cloud = self.start(prepared)
        done = journey(cloud, **{f"AZ_{fault}_AT": str(at), f"AZ_{fault}_WHEN": when})
        what = f"{journey.__name__}: {fault} {when} call {at}, {command}"
        if fault == "KILL":
            self.assertEqual(done.returncode, -signal.SIGKILL, what)
        elif fault in STOPPED:
            self.assertEqual(done.returncode, STOPPED[fault], what + done.stderr)
            self.assertRegex(last_line(done), rf"^\w+: Stopped by SIG{fault}\. .* again\.$", what)
            self.assertEqual(len(cloud.calls), at, what)
        elif command not in OPTIONAL:
            self.assertEqual(done.returncode, 1, what + done.stderr)
            self.assertRegex(last_line(done), r"^\w+: .*internal server error.* again( to watch it)?\.$", what)
            # The call may have deleted all.
            self.assertNotIn("Nothing is lost", done.stderr)
        return cloud, what

    def run_again(self, journey, cloud, what, code, end):
        again = journey(cloud)
        self.assertEqual(again.returncode, code, what + again.stderr)
        self.assertEqual(cloud.end(), end, what)

    def every_call(self, journey, prepare, code, reads):
        before = Cloud(self, bad=["1.0.2"], unregistered=["Microsoft.Insights"])
        prepare(before)
        prepared = before.state
        undisturbed = self.start(prepared)
        done = journey(undisturbed)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertGreater(len(undisturbed.calls), 4)
        tasks = []
        for at, line in enumerate(undisturbed.calls, 1):
            command = line.split(" /")[0]
            if reads or command in CHANGES:
                tasks.append(("FAIL", "before", at, command))
                tasks.append(("KILL", "after", at, command))
            # Also those whose failure stops nothing.
            if reads or command in CHANGES or command in OPTIONAL:
                tasks.append(("INT", "before", at, command))
            if command in CHANGES:
                # Before a call that changes nothing is the same as after the one before it.
                tasks.append(("KILL", "before", at, command))
                tasks.append(("FAIL", "after", at, command))
                tasks.append((("TERM", "HUP")[at % 2], "after", at, command))
        with concurrent.futures.ThreadPoolExecutor(2 * (os.cpu_count() or 1)) as pool:
            disturbed = list(pool.map(lambda task: self.disturb(journey, prepared, *task), tasks))
            # The scripts remember nothing here, so that a second run depends on Azure's state alone: one for each.
            states = {cloud.state_file.read_text(): (cloud, what) for cloud, what in disturbed}
            self.assertGreater(len(states), 1)
            again = [pool.submit(self.run_again, journey, *found, code, undisturbed.end()) for found in states.values()]
            for task in again:
                task.result()


def add_journeys():
    for journey, *rest in JOURNEYS:

        def test(self, journey=journey, rest=rest):
            self.every_call(journey, *rest)

        setattr(Disturbed, f"test_{journey.__name__}_is_safe_to_cut_and_run_again", test)


add_journeys()


# ----------------------------------------------------------------- deploy


class Deploy(Case):
    def test_with_the_real_python(self):
        cloud = Cloud(self)
        (cloud.folder / "bin" / "python3").unlink()
        (cloud.folder / "bin" / "python3").symlink_to(os.path.realpath(sys.executable))
        self.succeeds(cloud.run("preflight", "--location", "westeurope"))
        self.succeeds(cloud.deploy())
        self.succeeds(cloud.run("destroy", "--yes"))

    def test_a_first_deployment(self):
        cloud = Cloud(self)
        done = self.succeeds(cloud.deploy())
        self.assertEqual(
            [line for line in cloud.calls if line in CHANGES],
            ["group create", "deployment group create", "storage blob upload", "deployment group create"],
        )
        [account] = cloud.of_type("Microsoft.Storage/storageAccounts")
        [blob] = account["blobs"]
        self.assertEqual(blob, "packages/reprieve-worker/1.0.0/worker.tgz")
        self.assertEqual(account["blobs"][blob]["metadata"]["sha256"], account["blobs"][blob]["sha256"])
        self.assertIn("azure:stdemoabc123", done.stdout)
        self.assertEqual(list((cloud.folder / "tmp").iterdir()), [])

    def test_a_second_one_changes_nothing(self):
        cloud = Cloud(self)
        cloud.have_fleet()
        end = cloud.end()
        self.succeeds(cloud.deploy())
        self.assertEqual(cloud.end(), end)
        self.assertNotIn("storage blob upload", cloud.calls)

    def test_an_enlarged_set_keeps_its_instances_and_the_rest_stays_as_it_is(self):
        cloud = Cloud(self)
        enlarged(cloud)
        end = cloud.end()
        self.succeeds(cloud.run("deploy", REPRIEVE_SSH_PUBLIC_KEY=None))
        self.assertEqual([s["capacity"] for s in cloud.of_type("Microsoft.Compute/virtualMachineScaleSets")], [7])
        self.assertEqual(cloud.end(), end)

    def test_another_address_is_let_in_beside_the_first(self):
        cloud = Cloud(self)
        cloud.have_fleet()
        self.succeeds(cloud.run("deploy", "--allow-ip", "198.51.100.1", "--allow-ip", ADDRESS))
        [account] = cloud.of_type("Microsoft.Storage/storageAccounts")
        self.assertEqual(account["ips"], [ADDRESS, "198.51.100.1"])

    def test_it_waits_longer_each_time_until_a_role_is_known(self):
        cloud = Cloud(self, denials=6)
        self.succeeds(cloud.deploy())
        self.assertEqual(cloud.sleeps, [5, 10, 20, 40, 60, 60])

    def test_it_gives_up_on_a_role_after_a_quarter_of_an_hour(self):
        cloud = Cloud(self, denials=1000)
        self.fails(cloud.deploy(), "still refuses.*REPRIEVE_ALLOWED_IPS.*Storage Blob Data Contributor")
        self.assertLessEqual(sum(cloud.sleeps), 900)
        self.assertGreater(sum(cloud.sleeps), 800)

    def test_an_address_that_is_not_let_in_is_the_reason_at_once(self):
        cloud = Cloud(self)
        done = cloud.run("deploy", "--location", "westeurope", "--package", cloud.package("1.0.0"))
        self.fails(done, "--allow-ip ADDRESS")
        self.assertEqual(cloud.sleeps, [])

    def test_a_deployment_that_goes_on_is_waited_for(self):
        cloud = Cloud(self)
        killed = cloud.deploy(AZ_KILL_AT="9", AZ_KILL_WHEN="after")
        self.assertEqual((killed.returncode, cloud.calls[-1]), (-signal.SIGKILL, "deployment group create"))
        self.succeeds(cloud.deploy())
        self.assertEqual(cloud.sleeps, [5])

    def test_a_budget_keeps_its_first_day_in_later_months(self):
        cloud = Cloud(self)
        cloud.have_fleet()
        self.succeeds(cloud.run("deploy", AZ_MONTH="2026-12"))
        self.succeeds(cloud.run("update", "--package", cloud.package("1.0.1"), AZ_MONTH="2027-01"))
        self.assertEqual(cloud.group()["budgets"], {"budget-demo": "2026-11-01"})

    def test_a_second_deployment_in_a_group_is_refused(self):
        cloud = Cloud(self)
        cloud.have_fleet()
        there = ["--name", "other", "--group", "rg-reprieve-demo", "--allow-ip", ADDRESS]
        done = cloud.run("deploy", *there, "--package", cloud.package("1.0.0"))
        self.fails(done, "has the deployment demo, and has room for one")
        self.assertEqual(set(cloud.calls) & CHANGES, set())

    def test_a_key_of_windows_is_one_line_and_one_that_vms_do_not_take_is_passed_over(self):
        cloud = Cloud(self)
        keys = cloud.folder / ".ssh"
        keys.mkdir()
        (keys / "id_ed25519.pub").write_bytes(b"ssh-ed25519 AAAAother operator\r\n")
        # VMs take no such key.
        (keys / "id_ecdsa.pub").write_text("ecdsa-sha2-nistp256 AAAAthird operator")
        self.succeeds(cloud.deploy(REPRIEVE_SSH_PUBLIC_KEY=None))
        sets = cloud.of_type("Microsoft.Compute/virtualMachineScaleSets")
        self.assertEqual([s["key"] for s in sets], ["ssh-ed25519 AAAAother operator"])

    def test_addresses_of_alerts_may_have_spaces_between_them(self):
        cloud = Cloud(self)
        self.succeeds(cloud.deploy(REPRIEVE_CONTACT_EMAILS="a@example.com, b@example.com"))
        [actions] = cloud.of_type("Microsoft.Insights/actionGroups")
        self.assertEqual(actions["emails"], ["a@example.com", "b@example.com"])

    def test_a_managed_identity_has_to_name_itself(self):
        for user in ("systemAssignedIdentity", "userAssignedIdentity"):
            cloud = Cloud(self, user={"name": user, "type": "servicePrincipal"})
            self.fails(cloud.deploy(), "managed identity.*AZURE_PRINCIPAL_ID")
            self.succeeds(cloud.deploy(AZURE_PRINCIPAL_ID="aaaaaaaa-0000-0000-0000-000000000001"))

    def test_an_id_of_another_tenant_is_not_given_a_role(self):
        azd = {"AZ_DEFAULT": "99999999-2222", "AZURE_SUBSCRIPTION_ID": "11111111-2222-3333-4444-555555555555"}
        cloud = Cloud(self)
        self.fails(cloud.deploy(AZ_DEFAULT_TENANT="other", **azd), "another tenant .*AZURE_PRINCIPAL_ID")
        self.assertNotIn("deployment group create", cloud.calls)
        self.succeeds(cloud.deploy(AZ_DEFAULT_TENANT="other", AZURE_PRINCIPAL_ID="aaaaaaaa-0000-0000-0000-000000000001", **azd))

    def test_every_call_is_about_the_subscription_that_the_script_began_with(self):
        here, other = "11111111-2222-3333-4444-555555555555", "99999999-2222-3333-4444-555555555555"
        # azd names one, and az is signed in to another.
        azd = {"AZ_DEFAULT": other, "AZURE_SUBSCRIPTION_ID": here}
        cloud = Cloud(self)
        self.succeeds(cloud.run("preflight", "--location", "westeurope", **azd))
        self.succeeds(cloud.deploy("1.0.0", "--preset", "steady-fleet", **azd))
        self.succeeds(cloud.run("deploy", "--what-if", **azd))
        self.succeeds(cloud.run("update", "--package", cloud.package("1.0.1"), **azd))
        self.succeeds(cloud.run("destroy", "--keep-data", "--yes", **azd))
        self.assertEqual(cloud.of_type("Microsoft.AzureFleet/fleets"), [])
        done = self.succeeds(cloud.run("destroy", "--yes", AZ_DEFAULT=other))
        self.assertIn("does not exist; there is nothing to delete", done.stderr)
        self.succeeds(cloud.run("destroy", "--yes", **azd))
        self.assertEqual(cloud.state["groups"], {})

    def test_the_kind_of_a_given_principal_is_that_of_who_is_signed_in(self):
        source = (INFRA / "deploy").read_text()
        function = source[source.index("choose_uploader() {") : source.index("\n}\n", source.index("choose_uploader() {")) + 3]
        for user, kind in (("user", "User"), ("servicePrincipal", "ServicePrincipal")):
            script = f"{function}\nuser_type={user}; AZURE_PRINCIPAL_ID=x; choose_uploader; echo $AZURE_PRINCIPAL_TYPE"
            done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
            self.assertEqual(done.stdout.strip(), kind)

    def test_a_compute_fleet_keeps_its_key(self):
        cloud = Cloud(self)
        self.succeeds(cloud.deploy("1.0.0", "--preset", "steady-fleet"))
        keys = cloud.folder / ".ssh"
        keys.mkdir()
        (keys / "id_ed25519.pub").write_text("ssh-ed25519 AAAAother operator")
        package = ["--package", cloud.package("1.0.1")]
        self.succeeds(cloud.run("update", *package, REPRIEVE_SSH_PUBLIC_KEY=None))
        self.succeeds(cloud.run("deploy", *package, REPRIEVE_SSH_PUBLIC_KEY=None))
        [fleet] = cloud.of_type("Microsoft.AzureFleet/fleets")
        self.assertEqual(fleet["key"], KEY)

    def test_a_location_in_capitals_is_the_same_region(self):
        cloud = Cloud(self)
        self.succeeds(cloud.deploy())
        self.succeeds(cloud.deploy("1.0.0", "--location", "West Europe"))

    def test_a_version_that_is_a_path_is_none(self):
        for version in ("..", "1.0.0/../../x", "1.0", "1.0.0\n"):
            cloud = Cloud(self)
            package = pathlib.Path(cloud.package("1.0.0"))
            with tarfile.open(package, "w") as archive:
                manifest = json.dumps({"name": "reprieve-worker", "version": version}).encode()
                member = tarfile.TarInfo("manifest.json")
                member.size = len(manifest)
                archive.addfile(member, io.BytesIO(manifest))
            done = cloud.run("deploy", "--location", "westeurope", "--package", str(package), "--allow-ip", ADDRESS)
            self.fails(done, "is not a package of a worker")

    def test_an_az_that_hangs_is_stopped(self):
        cloud = Cloud(self)
        cloud.have_fleet()
        for at in (2, 4):
            done = cloud.run("update", "--package", cloud.package("1.0.1"), AZ_HANG_AT=str(at), REPRIEVE_AZ_TIMEOUT="1")
            self.fails(done, "failed: az gave no answer within 1 seconds. Mend that, and run infra/update again")

    def starts_python(self, cloud):
        """Replaces az by one as Debian has it, a shell that starts Python and waits. Here that never answers."""
        path = cloud.folder / "bin" / "az"
        path.write_text(f"#!/bin/bash\necho $$ >{cloud.folder}/shell\n/bin/sleep 1000 & echo $! >{cloud.folder}/pid\nwait\n")

    def ended(self, cloud):
        for name in ("pid", "shell"):
            stat = pathlib.Path("/proc", (cloud.folder / name).read_text().strip(), "stat")
            for _ in range(200):
                # A zombie has ended, too.
                if not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z":
                    break
                threading.Event().wait(0.05)
            else:
                self.fail(f"{name} still runs")

    @unittest.skipUnless(pathlib.Path("/proc/self/stat").exists(), "needs /proc")
    def test_what_a_hanging_az_has_started_ends_with_its_limit(self):
        cloud = Cloud(self)
        self.starts_python(cloud)
        done = self.fails(cloud.run("deploy", REPRIEVE_AZ_TIMEOUT="1"), "az gave no answer within 1 seconds")
        self.assertEqual(len(done.stderr.splitlines()), 1)
        self.ended(cloud)

    @unittest.skipUnless(pathlib.Path("/proc/self/stat").exists(), "needs /proc")
    def test_what_a_hanging_az_has_started_ends_with_the_script(self):
        for name, code in STOPPED.items():
            cloud = Cloud(self)
            self.starts_python(cloud)
            environment = {"PATH": f"{cloud.folder / 'bin'}:/usr/bin:/bin", "TMPDIR": str(cloud.folder / "tmp")}
            script = subprocess.Popen(
                [str(INFRA / "destroy")], env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
            )
            for _ in range(200):
                if (cloud.folder / "pid").exists() and (cloud.folder / "pid").read_text():
                    break
                threading.Event().wait(0.05)
            os.killpg(script.pid, getattr(signal, f"SIG{name}"))
            said = script.communicate(timeout=20)[1]
            self.assertEqual(script.returncode, code, said)
            self.assertEqual(said, f"destroy: Stopped by SIG{name}. What was begun in Azure goes on; run infra/destroy again.\n")
            self.ended(cloud)

    def test_what_ignores_sigterm_ends_with_the_limit_of_the_az_that_started_it(self):
        cloud = Cloud(self)
        path = cloud.folder / "bin" / "az"
        child = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(1000)"
        started = f"{sys.executable} -c '{child}' & echo $! >{cloud.folder}/pid"
        path.write_text(f"#!/bin/bash\necho $$ >{cloud.folder}/shell\n{started}\nwait\n")
        self.fails(cloud.run("deploy", REPRIEVE_AZ_TIMEOUT="1"), "az gave no answer within 1 seconds")
        self.ended(cloud)

    def test_an_az_that_was_killed_is_not_one_that_hung(self):
        cloud = Cloud(self)
        (cloud.folder / "bin" / "az").write_text("#!/bin/bash\nkill -KILL $$\n")
        done = self.fails(cloud.run("deploy"), "az was killed by signal 9")
        self.assertEqual(len(done.stderr.splitlines()), 1)

    def test_a_signal_ends_a_pause(self):
        # One like that between two looks at a VM.
        script = f". {INFRA / 'lib.sh'}; echo waits; pause=60; wait_below 100"
        waiting = subprocess.Popen(
            ["bash", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        self.assertEqual(waiting.stdout.readline(), "waits\n")
        waiting.terminate()
        said = waiting.communicate(timeout=20)[1]
        self.assertRegex(said, "Stopped by SIGTERM")
        self.assertEqual(waiting.returncode, 143)

    def test_a_version_with_other_bytes_is_refused(self):
        cloud = Cloud(self)
        cloud.have_fleet()
        end = cloud.end()
        self.fails(cloud.deploy(content=b"other"), "published with other bytes.*raise the version.*--version 1.0.1")
        self.assertEqual(cloud.end(), end)

    def test_a_package_that_was_uploaded_by_hand_is_compared_by_its_bytes(self):
        cloud = Cloud(self)
        cloud.have_fleet()
        state = cloud.state
        [account] = [r for r in state["groups"]["rg-reprieve-demo"]["resources"].values() if "blobs" in r]
        for blob in account["blobs"].values():
            blob["metadata"] = None
        cloud.state = state
        self.succeeds(cloud.deploy())
        self.assertIn("storage blob download", cloud.calls)
        self.fails(cloud.deploy(content=b"other"), "published with other bytes")

    def test_a_published_version_whose_package_is_gone_is_refused(self):
        cloud = Cloud(self)
        cloud.have_fleet()
        state = cloud.state
        [account] = [r for r in state["groups"]["rg-reprieve-demo"]["resources"].values() if "blobs" in r]
        account["blobs"] = {}
        cloud.state = state
        self.fails(cloud.deploy(), "no longer in stdemoabc123.*--version 1.0.1")

    def test_another_preset_is_refused_until_the_fleet_is_deleted(self):
        cloud = Cloud(self)
        cloud.have_fleet()
        self.fails(cloud.run("deploy", "--preset", "steady"), "has the preset elastic.*--keep-data")
        self.succeeds(cloud.run("destroy", "--keep-data", "--yes"))
        self.succeeds(cloud.run("deploy", "--preset", "steady", "--version", "1.0.0"))
        self.assertEqual([s["capacity"] for s in cloud.of_type("Microsoft.Compute/virtualMachineScaleSets")], [4])

    def test_every_preset(self):
        def come_and_go(preset):
            cloud = Cloud(self)
            self.succeeds(cloud.deploy("1.0.0", "--preset", preset))
            self.succeeds(cloud.run("deploy"))
            self.succeeds(cloud.run("destroy", "--keep-data", "--yes"))
            kinds = {r["type"].split("/")[1] for r in cloud.group()["resources"].values()}
            self.assertEqual(kinds & {"virtualMachineScaleSets", "fleets", "autoscaleSettings"}, set())

        with concurrent.futures.ThreadPoolExecutor() as pool:
            list(pool.map(come_and_go, ("steady", "steady-fleet", "elastic", "balanced", "swap")))

    def test_a_program_is_packaged(self):
        cloud = Cloud(self)
        (cloud.folder / "my-worker").write_text("ELF")
        done = cloud.run(
            "deploy",
            "--location",
            "westeurope",
            "--bin",
            "my-worker",
            "--version",
            "2.0.0",
            "--allow-ip",
            ADDRESS,
            CARGO_PACKAGE=cloud.package("2.0.0"),
        )
        self.succeeds(done)
        self.assertEqual(
            (cloud.folder / "cargo").read_text(),
            f"xtask package --bin {cloud.folder.resolve()}/my-worker --version 2.0.0\n",
        )

    def test_environment_variables_do_without_flags(self):
        """As azd's hooks call it."""
        cloud = Cloud(self)
        (cloud.folder / "package").mkdir()
        shutil.copy(cloud.package("1.2.3"), cloud.folder / "package" / "worker.tgz")
        self.succeeds(
            cloud.run(
                "deploy",
                REPRIEVE_NAME="batch",
                AZURE_RESOURCE_GROUP="rg-batch",
                AZURE_LOCATION="West Europe",
                AZURE_PRINCIPAL_ID="aaaaaaaa-0000-0000-0000-000000000001",
                REPRIEVE_ALLOWED_IPS=ADDRESS,
                REPRIEVE_PRESET="balanced",
                AZURE_ENV_NAME="staging",
            )
        )
        self.assertNotIn("ad signed-in-user show", cloud.calls)
        group = cloud.group("rg-batch")
        self.assertEqual(group["location"], "westeurope")
        [gallery] = [r for r in group["resources"].values() if r["type"] == "Microsoft.Compute/galleries"]
        self.assertEqual((list(gallery["versions"]), gallery["tags"]["azd-env-name"]), (["1.2.3"], "staging"))

    def test_what_if_changes_nothing(self):
        cloud = Cloud(self)
        done = self.succeeds(cloud.deploy("1.0.0", "--what-if"))
        self.assertRegex(last_line(done), "would be made in westeurope")
        self.assertEqual(cloud.state["groups"], {})
        cloud.have_fleet()
        end = cloud.end()
        done = self.succeeds(cloud.deploy("1.0.1", "--what-if"))
        self.assertEqual(cloud.end(), end)
        self.assertEqual(done.stdout, "Resource changes: base.bicepparam\nResource changes: elastic.bicepparam, sets {\"vmss-demo-westeurope\": 0}\n")
        enlarged(cloud)
        done = self.succeeds(cloud.deploy("1.0.1", "--what-if"))
        self.assertIn('elastic.bicepparam, sets {"vmss-demo-westeurope": 7}', done.stdout)
        self.assertEqual(set(cloud.calls) & CHANGES, set())

    def test_what_azure_refuses_is_the_last_sentence(self):
        self.fails(Cloud(self, may_assign=False).deploy(), "does not have authorization.*roleAssignments/write")
        self.fails(Cloud(self, signed_in=False).deploy(), "Please run 'az login'")

    def test_wrong_usage(self):
        cloud = Cloud(self)
        for arguments, pattern in (
            (["--nmae", "x"], 'no argument "--nmae"'),
            (["--name"], "--name needs a value"),
            (["--name", "--what-if"], "--name needs a value"),
            (["--name", "Much_too_long"], "2 to 9 lower-case"),
            (["--preset", "cheap"], "steady, steady-fleet, elastic, balanced, swap"),
            (["--version", "1.0"], "Major.Minor.Patch"),
            ([], "name its region by --location"),
        ):
            self.fails(cloud.run("deploy", *arguments), pattern, 2)
        self.assertEqual(cloud.state["groups"], {})

    def test_what_is_missing_here_is_named(self):
        cloud = Cloud(self)
        there = ["--location", "westeurope"]
        self.fails(cloud.run("deploy", *there), "no package; give the worker by --bin")
        self.fails(cloud.run("deploy", *there, "--package", "none.tgz"), "none.tgz can't be read")
        self.fails(cloud.run("deploy", *there, "--bin", "none"), "none can't be read; build it")
        self.fails(cloud.run("deploy", *there, "--version", "1.0.0"), "Version 1.0.0 is not published")
        (cloud.folder / "junk.tgz").write_text("junk")
        self.fails(cloud.run("deploy", *there, "--package", "junk.tgz"), "junk.tgz is not a package of a worker")
        package = ["--package", cloud.package("1.0.0")]
        self.fails(cloud.run("deploy", *there, *package, "--version", "1.0.1"), "is version 1.0.0, and --version says")
        self.fails(cloud.run("deploy", *there, *package, REPRIEVE_SSH_PUBLIC_KEY=None), "ssh-keygen")
        self.fails(cloud.run("deploy", "--location", "northeurope", *package), "is in westeurope; leave --location out")

    def test_a_set_of_somebody_else_without_a_size_is_left_alone(self):
        cloud = Cloud(self)
        cloud.have_fleet()
        state = cloud.state
        kind = "Microsoft.Compute/virtualMachineScaleSets"
        foreign = {"type": kind, "name": "someones", "tags": None, "location": "westeurope", "capacity": None, "key": ""}
        state["groups"]["rg-reprieve-demo"]["resources"][f"/x/{kind}/someones"] = foreign
        cloud.state = state
        self.succeeds(cloud.deploy())
        self.succeeds(cloud.run("destroy", "--keep-data", "--yes"))
        self.assertEqual([s["name"] for s in cloud.of_type(kind)], ["someones"])

    def test_every_script_says_in_which_subscription_it_works(self):
        for script in SCRIPTS:
            cloud = Cloud(self)
            cloud.have_fleet()
            done = cloud.run(script, *(["--version", "1.0.0"] if script == "update" else []))
            self.assertRegex(done.stderr, rf"^{script}: Subscription: .+ \(11111111-2222-3333-4444-555555555555\)\.\n")

    def test_addresses_and_keys_are_checked(self):
        cloud = Cloud(self)
        for address in ("hello", "2001:db8::1", "10.0.0.4", "203.0.113.7/32", "1.2.3", "0.0.0.0/0", "1.2.3.4/1", "127.0.0.1",
            "169.254.169.254", "100.64.0.1", "224.0.0.1", "*"):
            self.fails(cloud.deploy("1.0.0", "--allow-ip", address), "public IPv4 address", 2)
        for key in ("ssh-rsa ", KEY + "\n" + KEY, "ecdsa-sha2-nistp256 AAAA", "ssh-rsa BBBB"):
            self.fails(cloud.deploy(REPRIEVE_SSH_PUBLIC_KEY=key), "ssh-keygen")

    def test_the_set_of_a_region_that_is_named_no_more_is_refused(self):
        cloud = Cloud(self)
        cloud.have_fleet()
        state = cloud.state
        [(key, found)] = [
            (key, r)
            for key, r in state["groups"]["rg-reprieve-demo"]["resources"].items()
            if r["type"] == "Microsoft.Compute/virtualMachineScaleSets"
        ]
        state["groups"]["rg-reprieve-demo"]["resources"][key + "-old"] = {
            **found,
            "name": "vmss-demo-uksouth",
            "location": "uksouth",
        }
        cloud.state = state
        self.fails(cloud.deploy(), "no longer the region of vmss-demo-uksouth")

    def test_nothing_secret_is_printed(self):
        cloud = Cloud(self)
        done = cloud.deploy()
        self.assertNotIn(KEY, done.stdout + done.stderr)


class ByHand(Case):
    """The commands of README.md, as they are written there."""

    def test_they_deploy_what_the_scripts_go_on_with(self):
        text = (INFRA / "README.md").read_text().split("\nBy hand,", 1)[1]
        commands = text.split("```sh\n", 1)[1].split("```", 1)[0]
        cloud = Cloud(self)
        (cloud.folder / "infra").symlink_to(INFRA)
        shutil.copy(cloud.package("1.0.0"), cloud.folder / "worker.tgz")
        (cloud.folder / ".ssh").mkdir()
        (cloud.folder / ".ssh" / "id_ed25519.pub").write_text(evaluator.ENVIRONMENT["REPRIEVE_SSH_PUBLIC_KEY"] + "\n")
        commands = commands.replace("GROUP", "rg-reprieve-demo").replace("ACCOUNT", "stdemoabc123")
        script = cloud.folder / "by-hand"
        script.write_text(f"#!/bin/bash -e\n{commands}\nenv >environment\n")
        script.chmod(0o755)
        place = {"location": "westeurope", "resources": {}, "deployments": {}, "vms": {}}
        cloud.state = {**cloud.state, "groups": {"rg-reprieve-demo": place}}
        self.succeeds(cloud.run("by-hand", infra=cloud.folder, REPRIEVE_SSH_PUBLIC_KEY=None))
        self.assertEqual(len(cloud.calls), 5)
        done = self.succeeds(cloud.run("deploy", "--package", "worker.tgz", REPRIEVE_SSH_PUBLIC_KEY=None))
        self.assertIn("Version 1.0.0 is uploaded already", done.stderr)

        lines = (cloud.folder / "environment").read_text().splitlines()
        exported = dict(line.split("=", 1) for line in lines if line.startswith(("REPRIEVE_", "AZURE_")))
        require(self, "the offline checker (BICEPLINT)", evaluator.AVAILABLE)
        with unittest.mock.patch.object(evaluator, "ENVIRONMENT", exported):
            base, _ = evaluator.evaluate(str(INFRA / "base.bicepparam"))
            evaluator.evaluate(str(INFRA / "presets" / "elastic.bicepparam"))
        roles = [r["properties"]["description"] for r in base if r["type"].endswith("roleAssignments")]
        self.assertTrue(any(role.startswith("Uploads") for role in roles), roles)


# ----------------------------------------------------------------- update


class Update(Case):
    def fleet(self, capacity=3, **changes):
        cloud = Cloud(self, **changes)
        cloud.have_fleet()
        if capacity:
            cloud.grow(capacity)
        return cloud

    def version_of_sets(self, cloud):
        return [s["tags"]["application-version"] for s in cloud.of_type("Microsoft.Compute/virtualMachineScaleSets")]

    def test_it_watches_the_first_vm(self):
        cloud = self.fleet()
        done = self.succeeds(cloud.run("update", "--package", cloud.package("1.0.1")))
        self.assertRegex(done.stderr, "vmss-demo-westeurope_0+ has version 1.0.1, and is healthy")
        self.assertEqual((self.version_of_sets(cloud), cloud.sleeps), (["1.0.1"], [5]))

    def test_a_failed_application_stops_it_with_the_reason(self):
        cloud = self.fleet(bad=["1.0.1"])
        done = cloud.run("update", "--package", cloud.package("1.0.1"))
        self.fails(
            done, r"Version 1.0.1 failed on vmss-demo-westeurope_0+: Update FAILED.*exit status=13.*--version 1.0.0"
        )
        self.assertEqual(self.version_of_sets(cloud), ["1.0.1"])
        # What it says is the way back.
        self.succeeds(cloud.run("update", "--version", "1.0.0"))
        self.assertEqual(self.version_of_sets(cloud), ["1.0.0"])

    def test_rollback_deploys_the_version_before_it(self):
        cloud = self.fleet(bad=["1.0.1"])
        done = cloud.run("update", "--package", cloud.package("1.0.1"), "--rollback")
        self.fails(done, "exit status=13.*has version 1.0.0 again")
        self.assertEqual(self.version_of_sets(cloud), ["1.0.0"])
        self.assertEqual([s["capacity"] for s in cloud.of_type("Microsoft.Compute/virtualMachineScaleSets")], [3])

    def test_the_version_before_it_is_known_after_a_cut(self):
        cloud = self.fleet(bad=["1.0.1"])
        cloud.run("update", "--package", cloud.package("1.0.1"))
        # The sets name 1.0.1 now.
        done = cloud.run("update", "--package", cloud.package("1.0.1"), "--rollback")
        self.fails(done, "has version 1.0.0 again")

    def test_a_vm_that_stays_unhealthy_is_a_failure(self):
        cloud = self.fleet(unhealthy=["1.0.1"])
        done = cloud.run("update", "--package", cloud.package("1.0.1"), "--minutes", "10")
        self.fails(done, "in 10 minutes no VM had it.*health: HealthState/unhealthy")
        self.assertLessEqual(sum(cloud.sleeps), 600)

    def test_vms_that_go_or_are_off_are_passed_over(self):
        names = [f"vmss-demo-westeurope_{i:08x}" for i in range(3)]
        cloud = self.fleet(evicted=names[:1], deallocated=names[1:2])
        done = self.succeeds(cloud.run("update", "--package", cloud.package("1.0.1")))
        self.assertIn(f"{names[2]} has version 1.0.1", done.stderr)

    def test_without_vms_there_is_nothing_to_watch(self):
        cloud = self.fleet(capacity=0)
        done = self.succeeds(cloud.run("update", "--package", cloud.package("1.0.1")))
        self.assertIn("the next one starts with version 1.0.1", done.stderr)
        self.assertEqual(self.version_of_sets(cloud), ["1.0.1"])

    def test_an_address_that_is_not_let_in_is_the_reason_at_once(self):
        cloud = self.fleet(address="198.51.100.9")
        self.fails(cloud.run("update", "--package", cloud.package("1.0.1")), "infra/deploy --allow-ip ADDRESS")
        self.assertEqual(cloud.sleeps, [])

    def test_an_answer_of_another_shape_does_not_say_that_all_is_well(self):
        cloud = self.fleet()
        done = cloud.run("update", "--package", cloud.package("1.0.1"), AZ_VMS="null")
        self.fails(done, "What az says about the VMs of rg-reprieve-demo can't be read")

    def test_a_vm_that_starts_is_waited_for(self):
        view = {"instanceView": {"statuses": [{"code": "PowerState/starting"}, {"level": "Info"}]}}
        command = [sys.executable, "-IS", str(INFRA / "answers.py"), "application", "1.0.1"]
        done = subprocess.run(command, input=json.dumps(view), capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout.strip(), "waiting version 1.0.1 is not installed yet")

    def test_the_set_or_fleet_of_a_region_that_is_named_no_more_is_refused(self):
        for preset in ("elastic", "steady-fleet"):
            cloud = Cloud(self)
            self.succeeds(cloud.deploy("1.0.0", "--preset", preset))
            infra = cloud.folder / "infra"
            shutil.copytree(INFRA, infra, ignore=shutil.ignore_patterns("tests"))
            fleets = [{"location": "northeurope", "sizes": [], "zones": [], "sharePercent": 100, "maxPrice": "-1"}]
            (infra / "fleets.json").write_text(json.dumps(fleets))
            for script in ("update", "deploy"):
                done = cloud.run(script, "--package", cloud.package("1.0.1"), infra=infra)
                self.fails(done, "has no longer the region of (vmss|fleet)-demo-westeurope")

    def test_an_update_that_another_one_replaces_says_so(self):
        cloud = self.fleet()
        done = cloud.run("update", "--package", cloud.package("1.0.1"), AZ_REPLACED_BY="1.0.2")
        self.fails(done, "Version 1.0.1 was replaced by 1.0.2, which another run")

    def test_an_answer_with_nothing_where_a_number_or_a_list_was_is_read(self):
        sets = [{"name": "a", "sku": {"capacity": None}}, {"name": "b", "sku": None}, {"name": "c", "sku": {"capacity": 0}}]
        for question, given, wanted in (
            (["capacities"], sets, '{"c": 0}'),
            (["contacts", "demo"], [{"name": "ag-demo", "emailReceivers": None}], ""),
        ):
            command = [sys.executable, "-IS", str(INFRA / "answers.py"), *question]
            done = subprocess.run(command, input=json.dumps(given), capture_output=True, text=True, check=True)
            self.assertEqual(done.stdout.strip(), wanted)

    def test_the_time_that_calls_take_counts_as_waiting(self):
        slept = "exec 3>&1; sleep() { echo slept >&3; }; from_now; SECONDS=$((SECONDS + 56)); "
        for limit, printed in (("60", ""), ("62", "slept\n")):
            script = f". {INFRA / 'lib.sh'}; {slept} wait_below {limit} || true"
            done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
            self.assertEqual(done.stdout, printed, limit)

    def test_vms_without_tags_are_known_by_their_set(self):
        cloud = self.fleet()
        state = cloud.state
        for vm in state["groups"]["rg-reprieve-demo"]["vms"].values():
            vm["untagged"] = True
        cloud.state = state
        done = self.succeeds(cloud.run("update", "--package", cloud.package("1.0.1")))
        self.assertRegex(done.stderr, r"vmss-demo-westeurope_0+ has version 1\.0\.1, and is healthy")

    def test_the_error_of_an_older_version_is_not_the_new_ones(self):
        message = "Failed to install reprieve-worker 1.0.0: {\"CurrentState\": [{\"applicationName\": \"reprieve-worker\", \"version\": \"1.0.0\", \"result\": \"Install FAILED\"}]}"
        self.assertEqual(self.application("1.0.1", message), "waiting version 1.0.1 is not installed yet")
        self.assertEqual(self.application("1.0.0", message), "failed Install FAILED")
        self.assertEqual(self.application("1.0.1", "no {space}"), "failed no {space}")

    @staticmethod
    def application(version, message):
        statuses = [{"code": "ProvisioningState/failed", "level": "Error", "message": message}]
        view = {"instanceView": {"extensions": [{"name": "VMAppExtension", "statuses": statuses}]}}
        command = [sys.executable, "-IS", str(INFRA / "answers.py"), "application", version]
        return subprocess.run(command, input=json.dumps(view), capture_output=True, text=True, check=True).stdout.strip()

    def test_all_vms_of_a_compute_fleet_are_asked_and_none_that_is_known_as_anothers(self):
        cloud = Cloud(self)
        cloud.deploy("1.0.0", "--preset", "steady-fleet")
        state = cloud.state
        for name, changes in (
            ("another_1", {"tags": {"application": "reprieve", "deployment": "other", "application-version": "1.0.1"}}),
            ("another_2", {"profile": {"galleryApplications": [{"packageReferenceId": "/x/applications/other/versions/1"}]}}),
        ):
            vm = {"set": "unknown", "tags": {"application-version": "1.0.1"}, "installed": "1.0.1", "seen": 0}
            state["groups"]["rg-reprieve-demo"]["vms"][name] = {**vm, **changes}
        state["groups"]["rg-reprieve-demo"]["vms"]["fleet_1"] = {
            "set": "unknown",
            "tags": {"application-version": "1.0.1"},
            "installed": "1.0.0",
            "seen": 0,
        }
        cloud.state = state
        self.assertIn(
            "update: fleet_1 has version 1.0.1", self.succeeds(cloud.run("update", "--package", cloud.package("1.0.1"))).stderr
        )

    def test_refusals(self):
        cloud = Cloud(self)
        package = ["--package", cloud.package("1.0.0", b"other")]
        self.fails(cloud.run("update"), "Give the new worker by --bin", 2)
        self.fails(cloud.run("update", *package, "--minutes", "x"), "--minutes is a number", 2)
        self.fails(cloud.run("update", *package), "does not exist; deploy a fleet first")
        cloud.have_fleet()
        self.fails(cloud.run("update", *package), "published with other bytes")
        self.fails(cloud.run("update", "--version", "3.0.0"), "Version 3.0.0 is not published")
        self.fails(
            cloud.run("update", *package, "--name", "other", "--group", "rg-reprieve-demo"), "has no fleet other"
        )


# ----------------------------------------------------------------- destroy


class Destroy(Case):
    def fleet(self, **changes):
        cloud = Cloud(self, **changes)
        cloud.have_fleet()
        cloud.grow(2)
        state = cloud.state
        [account] = [r for r in state["groups"]["rg-reprieve-demo"]["resources"].values() if "queues" in r]
        account["queues"].update({"work": 40, "work-poison": 3})
        cloud.state = state
        return cloud

    def test_an_answer_that_can_not_be_read_is_no_answer(self):
        cloud = self.fleet()
        noise = "WARNING: a new version of az is there\n"
        self.fails(cloud.run("destroy", "--yes", AZ_NOISE=noise), "az's answer can't be read, and begins with .WARNING")
        self.assertIn("rg-reprieve-demo", cloud.state["groups"])

    def test_it_says_what_is_lost_and_asks_for_the_name(self):
        cloud = self.fleet()
        done = cloud.run("destroy", stdin="demo\n")
        self.fails(done, "Not confirmed; nothing was deleted")
        self.assertIn("Jobs waiting in work: 32 or more,", done.stderr)
        self.assertIn("Jobs waiting in work-poison: 3,", done.stderr)
        self.assertIn("rg-reprieve-demo with 8 resources, 0 of which do not have", done.stderr)
        self.fails(cloud.run("destroy"), "Not confirmed")
        self.assertEqual(set(cloud.calls) & CHANGES, set())
        self.succeeds(cloud.run("destroy", stdin="rg-reprieve-demo\n"))
        self.assertEqual(cloud.state["groups"], {})
        self.assertIn("nothing to delete", self.succeeds(cloud.run("destroy", "--yes")).stderr)

    def test_keep_data_deletes_the_fleet_only_autoscale_first(self):
        cloud = self.fleet()
        self.succeeds(cloud.run("destroy", "--keep-data", "--yes"))
        deleted = [line.split("/providers/")[1] for line in cloud.calls if line.startswith("resource delete")]
        self.assertEqual(
            deleted,
            [
                "Microsoft.Insights/autoscaleSettings/autoscale-demo-westeurope",
                "Microsoft.Compute/virtualMachineScaleSets/vmss-demo-westeurope",
            ],
        )
        [account] = cloud.of_type("Microsoft.Storage/storageAccounts")
        self.assertEqual((account["queues"]["work"], len(account["blobs"]), cloud.group()["vms"]), (40, 1, {}))
        self.succeeds(cloud.run("deploy", "--version", "1.0.0"))

    def test_jobs_that_can_not_be_counted_do_not_stop_it(self):
        cloud = self.fleet(may_peek=False)
        done = self.succeeds(cloud.run("destroy", "--yes"))
        self.assertIn("Jobs waiting: not known, because stdemoabc123 does not let you look", done.stderr)

    def test_a_group_of_somebody_else_is_not_deleted(self):
        cloud = Cloud(
            self, groups={"rg-other": {"location": "westeurope", "resources": {}, "deployments": {}, "vms": {}}}
        )
        self.fails(cloud.run("destroy", "--group", "rg-other", "--yes"), "has no deployment demo")
        cloud.have_fleet()
        # As the templates make it by hand.
        state = cloud.state
        group = state["groups"]["rg-reprieve-demo"]
        self.put(group, "database")
        next(r for r in group["resources"].values() if r["name"] == "database")["tags"] = {
            "application": "reprieve",
            "deployment": "two",
        }
        cloud.state = state
        self.fails(cloud.run("destroy", "--yes"), "also has the deployment two; only --keep-data")
        self.assertEqual(set(cloud.state["groups"]), {"rg-other", "rg-reprieve-demo"})

    def test_what_others_have_in_their_own_group_is_not_deleted_without_a_question(self):
        cloud = self.fleet()
        state = cloud.state
        group = state["groups"]["rg-reprieve-demo"]
        group["tags"] = {"team": "other"}
        self.put(group, "database")
        cloud.state = state
        self.fails(cloud.run("destroy", "--yes"), "was not made by infra/deploy for demo, and has resources without")
        self.assertIn("rg-reprieve-demo", cloud.state["groups"])
        self.succeeds(cloud.run("destroy", "--keep-data", "--yes"))
        self.succeeds(cloud.run("destroy", stdin="rg-reprieve-demo\n"))
        self.assertEqual(cloud.state["groups"], {})

    def test_a_group_with_a_tag_of_the_same_name_is_not_ours(self):
        group = {"location": "westeurope", "resources": {}, "deployments": {}, "vms": {}}
        group["tags"] = {"deployment": "prod", "team": "shop"}
        self.put(group, "database")
        cloud = Cloud(self, groups={"rg-shop": group})
        self.fails(cloud.run("destroy", "--name", "prod", "--group", "rg-shop", "--yes"), "has no deployment prod")
        self.assertIn("rg-shop", cloud.state["groups"])

    def test_what_somebody_adds_to_a_group_of_a_deployment_goes_with_it(self):
        cloud = self.fleet()
        state = cloud.state
        self.put(state["groups"]["rg-reprieve-demo"], "database")
        cloud.state = state
        done = self.succeeds(cloud.run("destroy", "--yes"))
        self.assertIn("9 resources, 1 of which do not have the tags", done.stderr)

    @staticmethod
    def put(group, name):
        key = f"/subscriptions/x/resourceGroups/rg-reprieve-demo/providers/Microsoft.Sql/servers/{name}"
        group["resources"][key] = {"type": "Microsoft.Sql/servers", "name": name, "tags": None, "location": "westeurope"}


# ----------------------------------------------------------------- preflight


class Preflight(Case):
    def check(self, *arguments, **changes):
        return Cloud(self, **changes).run("preflight", "--location", "westeurope", *arguments)

    def refused(self, pattern, *arguments, **changes):
        done = self.check(*arguments, **changes)
        self.assertRegex(done.stdout, rf"(?m)^FAIL +{pattern}")
        self.fails(done, "Mend what is marked FAIL, and run infra/preflight again")

    def test_a_good_subscription(self):
        done = self.succeeds(self.check())
        self.assertEqual({line.split()[0] for line in done.stdout.splitlines()}, {"ok"}, done.stdout)
        for preset in ("steady", "steady-fleet", "balanced", "swap"):
            self.succeeds(self.check("--preset", preset))

    def test_it_changes_nothing(self):
        cloud = Cloud(self, unregistered=["Microsoft.Insights"])
        before = cloud.state
        cloud.run("preflight", "--location", "westeurope")
        self.assertEqual(cloud.state, before)

    def test_a_provider_that_is_not_registered(self):
        self.refused(
            r"provider +Microsoft.Insights is not registered +infra/preflight --register",
            unregistered=["Microsoft.Insights"],
        )
        self.refused(
            "provider +Microsoft.AzureFleet", "--preset", "steady-fleet", unregistered=["Microsoft.AzureFleet"]
        )
        self.succeeds(self.check("--register", unregistered=["Microsoft.Insights"]))
        self.succeeds(self.check(unregistered=["Microsoft.AzureFleet", "Microsoft.Web"]))

    def test_the_providers_are_those_of_the_templates(self):
        text = "\n".join(p.read_text() for p in [*INFRA.glob("*.bicep"), *INFRA.glob("modules/*.bicep")])
        used = set(re.findall(r"^(?:  )?resource \w+ '(Microsoft\.\w+)/", text, re.M))
        module = load("findings", INFRA / "findings.py")
        # Always there.
        self.assertEqual(used - {"Microsoft.Authorization"}, {*module.PROVIDERS, "Microsoft.AzureFleet"})

    def test_a_size_that_is_not_offered(self):
        self.refused(
            "size +Standard_D2s_v4 is not offered in westeurope +take another", not_offered=["Standard_D2s_v4"]
        )
        location = [
            {
                "type": "Location",
                "reasonCode": "NotAvailableForSubscription",
                "values": ["westeurope"],
                "restrictionInfo": {"locations": ["westeurope"]},
            }
        ]
        self.refused(
            r"size +Standard_D2s_v4 .* to this subscription \(NotAvailableForSubscription\)",
            restrictions={"Standard_D2s_v4": location},
        )
        zone = [
            {
                "type": "Zone",
                "reasonCode": "NotAvailableForSubscription",
                "values": ["westeurope"],
                "restrictionInfo": {"locations": ["westeurope"], "zones": ["2"]},
            }
        ]
        self.refused("size +Standard_D2s_v4 is not offered in zone 2 of", restrictions={"Standard_D2s_v4": zone})

    def test_a_region_without_the_sizes(self):
        done = Cloud(self).run("preflight", "--location", "Mars Central")
        self.assertRegex(done.stdout, "FAIL +size +Standard_D2as_v5 is not offered in marscentral")

    def with_fleets(self, fleets, *arguments, **changes):
        cloud = Cloud(self, **changes)
        infra = cloud.folder / "copy" / "infra"
        left_out = shutil.ignore_patterns("node_modules", "__pycache__", "tests")
        shutil.copytree(INFRA, infra, ignore=left_out)
        text = fleets if isinstance(fleets, str) else json.dumps(fleets)
        (infra / "fleets.json").write_text(text)
        return cloud.run("preflight", "--location", "westeurope", *arguments, infra=infra)

    def test_wrong_fleets_are_named_as_stage_2_would(self):
        [good] = json.loads((INFRA / "fleets.json").read_text())

        def one(**changes):
            return [{**good, **changes}]

        half = {**good, "sharePercent": 50}
        north = {**half, "location": "northeurope", "addressPrefix": "10.65.0.0/16"}
        for fleets, pattern in (
            ("[", "is not JSON"),
            ([], "is empty"),
            ({}, "is not a list"),
            (one(sharePercent=60), "add up to 60 percent, not to 100"),
            (one(sharePercent="100"), "whole number"),
            (one(maxPrice=".05"), 'maxPrice ".05" of westeurope'),
            (one(maxPrice=0.05), "maxPrice is a text"),
            (one(network="nat"), 'network "nat" of westeurope is none of natGateway'),
            ([half, {**half, "location": "West Europe", "addressPrefix": "10.65.0.0/16"}], "westeurope is listed twice"),
            ([half, {**north, "addressPrefix": "10.64.0.0/16"}], "two regions have addressPrefix"),
            ([{k: v for k, v in good.items() if k != "maxPrice"}], "a region has no maxPrice"),
            (one(addressPrefix="10.64.0.0/24"), "is no /16"),
            (one(sizes=[]), "one to five"),
            (one(sizes=["Standard_D2as_v5", "standard_d2as_v5"]), "lists standard_d2as_v5 twice"),
            (one(sizes=["Standard_D2as_v5", "Standard_L8s_v3"]), "Standard_L8s_v3 of westeurope can't be in"),
            (one(sizes=["Standard_D2as_v5", "Standard_DC2as_v5"]), "Standard_DC2as_v5 of westeurope can't be in"),
            (one(zones=["4"]), 'zone "4"'),
        ):
            done = self.with_fleets(fleets)
            self.assertRegex(done.stdout, rf"(?m)^FAIL +fleets.json +.*{re.escape(pattern)}.* change infra/fleets.json")
            self.fails(done, "Mend what is marked FAIL")
        done = self.with_fleets(one(maxPrice="0.05"), "--preset", "steady")
        self.assertRegex(done.stdout, '(?m)^FAIL +fleets.json +with steady')
        self.succeeds(self.with_fleets(one(location="West Europe", maxPrice="0.05")))
        self.succeeds(self.with_fleets([half, north]))

    def test_sizes_that_can_not_be_mixed(self):
        self.refused("size +some sizes in westeurope have a local disk", local_disks=["Standard_D2s_v4"])
        self.refused("size +the sizes have different processors", arm=["Standard_D2s_v4"])
        self.refused("size +the sizes in westeurope have no disk interface in common", nvme=["Standard_D2s_v4"])
        # Each region for itself has one kind.
        [good] = json.loads((INFRA / "fleets.json").read_text())
        half = {**good, "sharePercent": 50, "sizes": ["Standard_D2as_v5"]}
        north = {**half, "location": "northeurope", "addressPrefix": "10.65.0.0/16", "sizes": ["Standard_D2s_v4"]}
        self.succeeds(self.with_fleets([half, north]))
        done = self.with_fleets([half, north], arm=["Standard_D2s_v4"])
        self.assertRegex(done.stdout, "(?m)^FAIL +size +the sizes have different processors")

    def test_the_fleets_own_preset_is_checked(self):
        cloud = Cloud(self)
        self.succeeds(cloud.deploy("1.0.0", "--preset", "steady-fleet"))
        cloud.state = {**cloud.state, "unregistered": ["Microsoft.AzureFleet"]}
        done = cloud.run("preflight")
        self.assertRegex(done.stdout, "FAIL +provider +Microsoft.AzureFleet")
        self.assertIn("has the preset steady-fleet, and elastic is checked", cloud.run("preflight", "--preset", "elastic").stderr)

    def test_quotas(self):
        # An elastic fleet that can have one VM works, and says how far it gets.
        done = self.succeeds(self.check(quota={"lowPriorityCores": 10}))
        self.assertRegex(
            done.stdout, r"(?m)^warn +quota +Spot vCPUs in westeurope: 10 vCPUs, of 40 at most +ask for 40"
        )
        self.refused("quota +Spot vCPUs in westeurope: 1 vCPUs, 2 are needed", quota={"lowPriorityCores": 1})
        # A fixed number needs all.
        self.refused("quota +Spot vCPUs.*: 6 vCPUs, 8 are needed", "--preset", "steady", quota={"lowPriorityCores": 6})
        self.succeeds(self.check(quota={"cores": 0}))
        self.refused("quota +regular vCPUs.*: 0 vCPUs, 4 are needed", "--preset", "balanced", quota={"cores": 0})
        self.refused("quota +standardDASv5Family", "--preset", "swap", quota={"standardDASv5Family": 0})

    def test_no_right_to_assign_roles(self):
        self.refused("right +you may not assign roles +ask for the role Role Based", may_assign=False)

    def test_an_old_az(self):
        self.refused("az +2.30.0 +az upgrade", az="2.30.0")

    def test_nobody_signed_in(self):
        self.fails(self.check(signed_in=False), "Please run 'az login'")


# ----------------------------------------------------------------- the scripts themselves


def load(name, path):
    loader = importlib.machinery.SourceFileLoader(name, str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


class Files(Case):
    def test_help_has_the_exit_codes_and_every_flag(self):
        for script in SCRIPTS:
            done = subprocess.run([str(INFRA / script), "--help"], capture_output=True, text=True, check=True)
            self.assertRegex(done.stdout, r"Exit codes: 0 .*, 1 .*, 2 wrong usage\.")
            flags = set(re.findall(r"^  (--[a-z-]+)\b.*\) ", (INFRA / script).read_text(), re.M)) - {"--help"}
            self.assertGreater(len(flags), 3)
            for flag in flags:
                self.assertIn(f" {flag} ", done.stdout.replace("\n", " "))

    def test_shellcheck_finds_nothing(self):
        require(self, "shellcheck", shutil.which("shellcheck"), needed=False)
        done = subprocess.run(
            ["shellcheck", "-x", "lib.sh", *SCRIPTS], cwd=INFRA, capture_output=True, text=True, check=False
        )
        self.assertEqual(done.stdout, "")

    def test_az_explains_itself_in_one_sentence(self):
        for text, wanted in (
            ("ERROR: (Code) It is so.\nCode: Code\nMessage: It is so.", "(Code) It is so."),
            ("WARNING: a\nERROR: \nYou may not.\nDepending on", "You may not."),
            ('ERROR: {"error": {"message": "no", "details": [{"message": "one"}, {"message": "two"}]}}', "one two."),
            ('ERROR: {"error": {"message": "{\\"error\\": {\\"message\\": \\"deep\\"}}"}}', "deep."),
            ("", "az gave no reason."),
        ):
            done = subprocess.run(
                [sys.executable, str(INFRA / "answers.py"), "reason"],
                input=text,
                capture_output=True,
                text=True,
                check=True,
            )
            self.assertEqual(done.stdout.strip(), wanted)

    def test_the_stand_in_refuses_what_it_does_not_know(self):
        cloud = Cloud(self)
        env = {"PATH": os.environ["PATH"], "AZ_STATE": str(cloud.state_file), "AZ_LOG": str(cloud.folder / "log")}
        for arguments in (
            ["vm", "burn"],
            ["vm", "list", "--grup", "x"],
            ["group", "show"],
            ["group", "show", "--name"],
        ):
            done = subprocess.run([str(INFRA / "tests" / "az"), *arguments], env=env, capture_output=True, check=False)
            self.assertEqual(done.returncode, 2, arguments)

    def test_the_real_az_has_every_command_and_flag(self):
        real = os.environ.get("REPRIEVE_REAL_AZ")
        require(self, "a real az (REPRIEVE_REAL_AZ)", real, needed=False)
        os.environ.setdefault("AZ_STATE", "/nonexistent")
        os.environ.setdefault("AZ_LOG", "/nonexistent")
        for command, flags in load("stand_in", INFRA / "tests" / "az").COMMANDS.items():
            done = subprocess.run([real, *command.split(), "--help"], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, command)
            for flag in flags.split():
                self.assertRegex(done.stdout, rf"(?m)^    .*{flag[:-1]}\b", f"{command}: {flag}")


if __name__ == "__main__":
    unittest.main()
