#!/usr/bin/env python3
"""The package on a machine with a real systemd: `sudo infra/tests/nspawn/test_package.py`.

Needs `cargo test --no-run` and `cargo xtask`, and takes the programs from
target/debug, or from where REPRIEVE_TEST_BINARIES says. `--jobs=2` runs the tests in two processes;
other arguments are unittest's, such as `-k install`.
With REPRIEVE_TESTS_NEED_NSPAWN=1, a machine that can't run it is an error.
"""

import collections
import concurrent.futures
import faulthandler
import itertools
import json
import os
import re
import shutil
import signal
import socketserver
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import unittest
from pathlib import Path

import fleet
import packages
from fleet import AGENT, Fleet, until

# A shell can't catch a signal that was ignored when it began, as nohup and a shell's background jobs have it.
for ignored in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
    if signal.getsignal(ignored) == signal.SIG_IGN:
        signal.signal(ignored, signal.SIG_DFL)

BINARIES = Path(os.environ.get("REPRIEVE_TEST_BINARIES", fleet.REPOSITORY / "target/debug"))
XTASK = Path(os.environ.get("REPRIEVE_TEST_XTASK", BINARIES / "xtask"))
# Seconds that one test may take, four times what the longest takes. One that hangs says where.
LIMIT = 900
NEEDED = os.environ.get("REPRIEVE_TESTS_NEED_NSPAWN", "0") not in ("", "0")
JOURNAL = "/var/lib/reprieve/journal"

# Answers --version, as all workers do, and does not work.
EXITS = b"#!/bin/sh\n[ $# = 0 ] || exit 0\necho 'no luck today' >&2\nexit 1\n"
HANGS = b"#!/bin/sh\n[ $# = 0 ] || exit 0\ntrap '' TERM\nsleep 1000 &\nwait\nsleep 1000\n"
# What a program of a job does in the worker's sandbox, and what it can't do.
PROBE = """#!/bin/sh
exec >/var/lib/reprieve/probe 2>&1
touch /var/lib/reprieve/own /tmp/own && echo wrote its own files
mkdir -p /var/lib/reprieve/copy && tar -C /var/lib/reprieve -cf - own | tar -C /var/lib/reprieve/copy -xf - \\
  && echo ran programs in a pipe
python3 -c 'import threading; t = threading.Thread(target=print, args=("ran a thread",)); t.start(); t.join()'
curl -sf -H Metadata:true 'http://169.254.169.254/metadata/instance/compute/name?api-version=2021-02-01&format=text'
echo
for path in /etc/x /usr/x /opt/reprieve/x /var/x /run/x; do
  touch "$path" && echo "WROTE $path"
done
ls /home/* /root 2>/dev/null && echo SAW A HOME
cat /etc/shadow && echo READ THE PASSWORDS
unshare --user true && echo MADE A NAMESPACE
chown 0 /var/lib/reprieve/own && echo CHANGED AN OWNER
exit 0
"""
# Works, and says at the address of its instance that it does not.
UNHEALTHY = b"""#!/usr/bin/python3
import http.server, os, socket, sys
if len(sys.argv) > 1:
    sys.exit(0)
BODY = b'{"ApplicationHealthState":"Unhealthy"}'
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()
        self.wfile.write(BODY)
server = http.server.HTTPServer(("127.0.0.1", int(os.environ["REPRIEVE_LISTEN"].rpartition(":")[2])), Handler)
socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"READY=1", os.environ["NOTIFY_SOCKET"])
server.serve_forever()
"""
# Another C library, for one.
DOES_NOT_RUN = b"#!/bin/sh\necho 'version `GLIBC_2.99 not found' >&2\nexit 1\n"


def figures(text):
    print(f"    {text}", file=sys.stderr, flush=True)


class Result(unittest.TextTestResult):
    """Shows what the machines of a failed test logged, before they are gone."""

    def addFailure(self, test, error):
        super().addFailure(test, error)
        test.show_machines()

    def addError(self, test, error):
        super().addError(test, error)
        if isinstance(test, PackageTest):
            test.show_machines()


class PackageTest(unittest.TestCase):
    """Each test has a machine of its own."""

    fleet = None

    def setUp(self):
        self.fleet = self.enterContext(Fleet(BINARIES))
        self.machine = self.fleet.machine

    def show_machines(self):
        for machine in self.fleet.machines if self.fleet else []:
            lines = machine.journal("--lines=80", "--output=short-precise")
            print(f"--- {machine.namespace}\n{lines}", file=sys.stderr, flush=True)

    def package(self, version, **files):
        return packages.change(self.archive, version, self.fleet.directory, **files)

    def use_small_worker(self):
        """All versions of this test have a worker that takes no jobs and no time to unpack."""
        self.archive = self.package("1.0.0", bin_worker=self.small)

    def succeed(self, name, version, machine=None, **options):
        ran = (machine or self.machine).command(name, version, **options)
        self.assertEqual(ran.returncode, 0, f"{name} {version}: {ran.stdout}{ran.stderr}")
        return ran

    def install(self, version="1.0.0"):
        """Installs a version, and waits until its worker takes jobs."""
        self.machine.download(self.archive if version == "1.0.0" else self.package(version), version)
        ran = self.succeed("install", version)
        self.machine.await_ready()
        return ran

    def current(self):
        return os.path.basename(os.readlink(self.machine.root / "opt/reprieve/current"))

    def versions(self):
        return sorted(os.listdir(self.machine.root / "opt/reprieve/versions"))

    def walks(self, count, steps=20, each_ms=100):
        arguments = [{"steps": steps, "each_ms": each_ms, "journal": JOURNAL}] * count
        return self.fleet.enqueue("walk", arguments)

    def stepped(self, steps):
        """Waits until this number of steps has begun."""
        until(f"{steps} steps", lambda: self.machine.steps(JOURNAL) >= steps)

    def done_once(self, jobs, steps=20, patience=120, poisoned=0):
        """Waits for all jobs, and checks that each was done once, with one result and no step lost."""
        until("every job has a result", lambda: self.fleet.results() >= set(jobs), patience)
        self.assertEqual(self.fleet.results(), set(jobs))
        until("the queue is empty", lambda: self.fleet.status()["queue"]["total"] == 0)
        self.assertEqual(self.fleet.status()["queue"]["poisoned"], poisoned)
        for job in jobs:
            self.assertEqual(self.fleet.result(job)["sum"], steps * (steps - 1) // 2, job)
        # A machine that died before it logged the end of a job has none.
        completed = collections.Counter(job for machine in self.fleet.machines for job in machine.completed())
        self.assertEqual({job: count for job, count in completed.items() if count > 1}, {})

    def repeated(self):
        """Returns how many steps were begun more than once."""
        lines = (self.machine.root / JOURNAL.lstrip("/")).read_text().splitlines()
        steps = [tuple(line.split()[:2]) for line in lines]
        return len(steps) - len(set(steps))

    def traces(self, program):
        """Returns which of the package's things are on the machine."""
        root = self.machine.root
        places = ["opt/reprieve", "var/lib/reprieve", "etc/systemd/system/reprieve-worker.service"]
        places += ["etc/systemd/system/reprieve-worker@.service"]
        places += ["etc/systemd/system/multi-user.target.wants/reprieve-worker.service"]
        found = [place for place in places if os.path.lexists(root / place)]
        for database in ("passwd", "group"):
            if self.machine.run("getent", database, "reprieve", check=False).returncode == 0:
                found.append(database)
        if self.machine.run("test", "-e", "/run/reprieve", check=False).returncode == 0:
            found.append("run/reprieve")
        if self.machine.run("pgrep", "-f", program, check=False).returncode == 0:
            found.append("process")
        return found


class Install(PackageTest):
    def test_the_worker_runs_unprivileged_and_enabled_and_does_the_jobs(self):
        machine = self.machine
        ran = self.install()
        figures(f"install: {ran.seconds:.1f} s")
        self.assertLess(ran.seconds, 10, "install waits for nothing")
        self.assertIn("version 1.0.0 is installed", ran.stdout)
        self.assertEqual(ran.stderr, "")
        self.assertEqual(machine.show("ActiveState"), "active")
        self.assertEqual(machine.show("Type"), "notify")
        self.assertEqual(machine.run("systemctl", "is-enabled", "reprieve-worker").stdout, "enabled\n")
        self.assertTrue(machine.healthy(), machine.get("/healthz"))
        self.assertEqual(self.current(), "1.0.0")

        status = machine.run("cat", f"/proc/{machine.worker()}/status").stdout
        fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        uid = machine.run("id", "-u", "reprieve").stdout.strip()
        self.assertEqual(fields["Uid"].split(), [uid] * 4)
        self.assertNotEqual(uid, "0")
        self.assertEqual(fields["CapBnd"], "0" * 16)
        self.assertEqual((fields["NoNewPrivs"], fields["Seccomp"]), ("1", "2"))
        modes = {
            "/etc/reprieve/worker.env": "640 root reprieve",
            "/opt/reprieve/current/bin/worker": "755 root root",
            "/opt/reprieve/current/": "755 root root",
            "/var/lib/reprieve": "700 reprieve reprieve",
            "/run/reprieve": "700 reprieve reprieve",
        }
        for path, expected in modes.items():
            self.assertEqual(machine.run("stat", "-c", "%a %U %G", path).stdout.strip(), expected, path)

        jobs = self.walks(8)
        self.done_once(jobs)
        self.assertEqual(self.repeated(), 0)
        completed = machine.completed()
        self.assertEqual(sorted(completed), sorted(jobs))
        # What rsyslog and the Azure Monitor agent choose by.
        entry = machine.run("journalctl", "-o", "json", "-n", "1", "-t", "reprieve-worker").stdout
        self.assertEqual(json.loads(entry)["SYSLOG_FACILITY"], "19", "local3")
        entry = json.loads(machine.run("journalctl", "-o", "json", "-n", "1", "-t", "reprieve-package").stdout)
        self.assertEqual((entry["SYSLOG_FACILITY"], entry["PRIORITY"]), ("19", "6"))
        self.assertIn("version 1.0.0 is installed", json.loads(entry["MESSAGE"])["message"])

    def test_it_can_be_installed_twice_by_either_shell_and_does_not_restart(self):
        self.install()
        before = self.machine.worker()
        inode = os.stat(self.machine.root / "opt/reprieve/versions/1.0.0/bin/worker").st_ino
        for shell in ("/bin/bash", "/bin/sh"):
            self.succeed("install", "1.0.0", shell=shell)
            self.assertEqual(self.machine.worker(), before)
        self.assertEqual(os.stat(self.machine.root / "opt/reprieve/versions/1.0.0/bin/worker").st_ino, inode)
        self.assertEqual(self.versions(), ["1.0.0"])

    def test_a_damaged_version_is_repaired(self):
        self.install()
        worker = self.machine.root / "opt/reprieve/versions/1.0.0/bin/worker"
        whole = worker.read_bytes()
        worker.unlink()
        worker.write_bytes(b"")
        self.succeed("install", "1.0.0")
        self.assertEqual(worker.read_bytes(), whole)
        self.machine.await_ready()

    def test_a_version_with_other_modes_is_repaired(self):
        self.use_small_worker()
        self.install()
        for file in ("bin/worker", "install.sh"):
            self.machine.run("chmod", "0644", f"/opt/reprieve/versions/1.0.0/{file}")
            self.succeed("install", "1.0.0")
            mode = self.machine.run("stat", "-c", "%a", f"/opt/reprieve/versions/1.0.0/{file}").stdout
            self.assertEqual(mode, "755\n", file)

    def test_a_worker_that_does_not_say_its_version_in_time_is_refused(self):
        hangs = b"#!/bin/sh\ntrap '' TERM\nsleep 100\n"
        self.machine.download(self.package("1.0.0", bin_worker=hangs), "1.0.0")
        ran = self.machine.command("install", "1.0.0")
        self.assertEqual(ran.returncode, 12, ran.stderr)
        self.assertLess(ran.seconds, 40)

    def test_an_incomplete_download_changes_nothing_and_says_so(self):
        whole = self.archive.read_bytes()
        for expected, content in [
            ("is not in", None),
            ("is empty", b""),
            ("is truncated or damaged", whole[: len(whole) // 2]),
            ("is truncated or damaged", whole[:-4]),
        ]:
            for command in ("install", "update"):
                with self.subTest(expected=expected, command=command):
                    self.machine.download(content, "1.0.0")
                    ran = self.machine.command(command, "1.0.0")
                    self.assertEqual(ran.returncode, 10)
                    self.assertEqual(ran.stdout, "")
                    self.assertIn(f"{AGENT}/1.0.0", ran.stderr)
                    self.assertIn("reprieve-worker: worker.tgz", ran.stderr)
                    self.assertIn(expected, ran.stderr)
                    self.assertEqual(len(ran.stderr.splitlines()), 1, ran.stderr)
                    self.assertEqual(self.traces("bin/worker"), [])

    def test_a_worker_that_the_machine_cant_run_is_refused(self):
        self.machine.download(self.package("1.0.0", bin_worker=DOES_NOT_RUN), "1.0.0")
        ran = self.machine.command("install", "1.0.0")
        self.assertEqual(ran.returncode, 12)
        self.assertIn("can't run on this machine", ran.stderr)
        self.assertIn("GLIBC_2.99", ran.stderr)
        self.assertIsNone(self.machine.worker())

    def test_jobs_can_start_programs_in_the_sandbox_and_not_leave_it(self):
        probe = self.machine.root / "usr/local/bin/probe"
        probe.write_text(PROBE)
        probe.chmod(0o755)
        drop_in = self.machine.root / "etc/systemd/system/reprieve-worker.service.d/probe.conf"
        drop_in.parent.mkdir()
        drop_in.write_text("[Service]\nExecStartPre=/usr/local/bin/probe\n")
        self.install()
        found = (self.machine.root / "var/lib/reprieve/probe").read_text()
        for line in ("wrote its own files", "ran programs in a pipe", "ran a thread", self.machine.name):
            self.assertIn(line + "\n", found)
        for line in ("WROTE", "SAW", "READ", "MADE", "CHANGED"):
            self.assertNotIn(line, found)
        self.succeed("remove", "1.0.0")
        self.assertTrue(drop_in.exists(), "what an operator added stays")

    def test_doctor_finds_nothing_to_mend(self):
        self.install()
        self.done_once(self.walks(2))
        shutil.copy(BINARIES / "reprieve", self.machine.root / "usr/local/bin/reprieve")
        # As infra/README.md says, where the package has no command of its own.
        asked = "--property=EnvironmentFile=/etc/reprieve/worker.env --property=User=reprieve".split()
        asked = ["systemd-run", "--quiet", "--pipe", "--wait", *asked, "/usr/local/bin/reprieve", "doctor"]
        ran = self.machine.run(*asked, check=False)
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
        figures(ran.stdout.replace("\n", "\n    "))
        self.assertIn("\nno problems, no warnings\n", ran.stdout)

    def test_the_worker_starts_when_its_settings_come_late(self):
        settings = self.machine.root / "etc/reprieve/worker.env"
        content = settings.read_text()
        settings.unlink()
        self.machine.download(self.archive, "1.0.0")
        self.assertIn("does not exist yet", self.succeed("install", "1.0.0").stdout)
        until("a start has failed", lambda: int(self.machine.show("NRestarts")) >= 2)
        settings.write_text(content)
        self.machine.await_ready()

    def test_as_many_workers_start_as_late_settings_ask_for(self):
        self.use_small_worker()
        settings = self.machine.root / "etc/reprieve/worker.env"
        content = settings.read_text().replace("REPRIEVE_INSTANCES=1", "REPRIEVE_INSTANCES=2")
        settings.unlink()
        self.machine.download(self.archive, "1.0.0")
        self.succeed("install", "1.0.0")
        settings.write_text(content)
        for i in (1, 2):
            settings.with_name(f"worker@{i}.env").write_text(f"REPRIEVE_LISTEN=127.0.0.1:{9100 + i}\n")
        # What cloud-init runs when it has written them.
        cloud_init = (fleet.REPOSITORY / "infra/cloud-init.yaml").read_text()
        [line] = re.findall(r'- \[sh, -c, "(.*install\.sh.*)"\]', cloud_init)
        self.machine.run("sh", "-c", line)
        units = ["reprieve-worker@1.service", "reprieve-worker@2.service"]
        until("both run", lambda: all(self.machine.worker(unit) for unit in units))
        self.assertIsNone(self.machine.worker())


class Failing(PackageTest):
    """Tools that fail in the middle of a command."""

    def test_an_update_whose_tools_fail_after_the_drain_starts_the_old_version_again(self):
        units = "/etc/systemd/system"
        breaks = {
            "read-only": [f"mount --bind {units} {units}", f"mount -o remount,ro,bind {units}"],
            "full": [
                f"cp -a {units} /root/units && mount -t tmpfs -o size=256k tmpfs {units} && cp -a /root/units/. {units}",
                f"dd if=/dev/zero of={units}/fill bs=1k || true",
            ],
        }
        self.use_small_worker()
        self.install()
        self.machine.download(self.package("1.1.0"), "1.1.0")
        for what, commands in breaks.items():
            with self.subTest(what):
                before = self.machine.worker()
                for command in commands:
                    self.machine.run("sh", "-c", command)
                ran = self.machine.command("update", "1.1.0")
                self.machine.run("umount", units)
                self.assertNotEqual(ran.returncode, 0)
                self.assertIn("Version 1.0.0 was started again", ran.stderr)
                until("a worker runs again", lambda: (self.machine.worker() or before) != before)
                self.machine.await_ready()
                self.assertEqual(self.current(), "1.0.0")
        self.succeed("update", "1.1.0")
        self.machine.await_ready()
        self.assertEqual(self.current(), "1.1.0")

    def test_remove_keeps_an_embedded_store_whatever_its_name_and_whoever_names_it(self):
        self.machine.write_environment(REPRIEVE_STORE="azure:elsewhere")
        drop_in = self.machine.root / "etc/systemd/system/reprieve-worker.service.d/store.conf"
        drop_in.parent.mkdir()
        drop_in.write_text("[Service]\nEnvironment=REPRIEVE_LISTEN=127.0.0.1:9090\nEnvironmentFile=/etc/store.env\n")
        (self.machine.root / "etc/store.env").write_text("REPRIEVE_STORE=sqlite:/var/lib/reprieve/my.jobs\n")
        self.install()
        self.assertTrue((self.machine.root / "var/lib/reprieve/my.jobs").exists())
        self.assertIn("has the jobs of an embedded store", self.succeed("remove", "1.0.0").stdout)
        self.assertTrue((self.machine.root / "var/lib/reprieve/my.jobs").exists())

    def test_remove_keeps_what_is_mounted_in_the_state_directory(self):
        self.use_small_worker()
        self.install()
        scratch = "/var/lib/reprieve/scratch"
        self.machine.run("sh", "-c", f"mkdir {scratch} && mount -t tmpfs tmpfs {scratch} && echo x >{scratch}/data")
        for _ in range(2):
            self.succeed("remove", "1.0.0")
        self.assertEqual(self.machine.run("cat", f"{scratch}/data").stdout, "x\n")
        self.machine.download(self.archive, "1.0.0")
        self.succeed("install", "1.0.0")
        ran = self.succeed("remove", "1.0.0")
        self.assertIn("/var/lib/reprieve stays: something is mounted in it", ran.stdout)
        self.machine.run("umount", scratch)
        self.machine.download(self.archive, "1.0.0")
        self.succeed("install", "1.0.0")
        self.succeed("remove", "1.0.0")
        self.assertEqual(self.traces("bin/worker"), [])

    def test_remove_keeps_a_user_that_was_there_before(self):
        self.machine.run("useradd", "--uid", "1234", "--comment", "an administrator", "reprieve")
        self.install()
        self.succeed("remove", "1.0.0")
        self.assertEqual(self.machine.run("id", "-u", "reprieve").stdout, "1234\n")


class Cut(PackageTest):
    """SIGKILL at ten of a command's forks, spread over all of them, and the command again."""

    POINTS = 10
    FORKS = "clone,clone3,fork,vfork"

    def setUp(self):
        super().setUp()
        self.use_small_worker()

    def points(self, name, version, spare=0):
        """Runs a command to its end, and chooses among its shell's forks: the call, and the how many-th."""
        with tempfile.NamedTemporaryFile("r") as trace:
            tracer = ["strace", "-f", "-qq", "-e", f"trace={self.FORKS}", "-e", "signal=none"]
            self.succeed(name, version, tracer=[*tracer, "-o", trace.name])
            # A call that another process interrupts has a second line, "resumed".
            lines = [line.split(None, 1) for line in trace if "resumed" not in line]
        shell = collections.Counter(process for process, _ in lines).most_common(1)[0][0]
        calls = [call.split("(")[0] for process, call in lines if process == shell]
        forks = [(call, calls[: index + 1].count(call)) for index, call in enumerate(calls)]
        # The first clone of a process is also nsenter's own, and injections count for each process.
        forks = [(call, number) for call, number in forks if number > 1]
        self.assertGreater(len(forks), self.POINTS)
        last = len(forks) - 1 - spare
        chosen = [forks[last * index // (self.POINTS - 1)] for index in range(self.POINTS)]
        figures(f"{name} is cut at {self.POINTS} of its {len(forks)} forks")
        return chosen

    def cut(self, name, version, fork):
        """Kills the shell of a command at one of its forks."""
        call, number = fork
        inject = ["-e", f"trace={self.FORKS}", "-e", f"inject={call}:signal=SIGKILL:when={number}"]
        ran = self.machine.command(name, version, tracer=["strace", "-f", "-qq", "-o", "/dev/null", *inject])
        self.assertNotEqual(ran.returncode, 0, f"{name} was not cut at {fork}: {ran.stdout}")

    def test_an_install(self):
        self.machine.download(self.archive, "1.0.0")
        points = self.points("install", "1.0.0")
        self.succeed("remove", "1.0.0")
        for fork in points:
            with self.subTest(fork=fork):
                self.cut("install", "1.0.0", fork)
                self.succeed("install", "1.0.0")
                self.machine.await_ready()
                self.assertEqual(self.versions(), ["1.0.0"])
                self.succeed("remove", "1.0.0")
                self.assertEqual(self.traces("bin/worker"), [])

    def test_an_update(self):
        self.install()
        archives = {version: self.package(version) for version in ("1.1.0", "1.2.0")}
        for version, archive in archives.items():
            self.machine.download(archive, version)
        # Another update may find the worker healthy a look earlier, and forks less often then.
        points = self.points("update", "1.1.0", spare=12)
        before = "1.1.0"
        for fork in points:
            with self.subTest(fork=fork):
                version = "1.2.0" if before == "1.1.0" else "1.1.0"
                self.cut("update", version, fork)
                self.succeed("update", version)
                self.machine.await_ready()
                self.assertEqual((self.current(), self.versions()), (version, ["1.1.0", "1.2.0"]))
                self.assertFalse(os.path.lexists(self.machine.root / "opt/reprieve/rollback"))
                before = version

    def test_a_removal(self):
        self.install()
        points = self.points("remove", "1.0.0")
        for fork in points:
            with self.subTest(fork=fork):
                self.install()
                self.cut("remove", "1.0.0", fork)
                self.succeed("remove", "1.0.0")
                self.assertEqual(self.traces("bin/worker"), [])


class Update(PackageTest):
    def watched(self, run):
        """Runs a command, and returns it with the longest time for which nothing was healthy."""
        ended = threading.Event()
        gaps = [0.0]

        def watch():
            healthy_at = time.monotonic()
            while not ended.is_set():
                if self.machine.healthy():
                    healthy_at = time.monotonic()
                gaps.append(time.monotonic() - healthy_at)
                ended.wait(0.2)

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            return run(), max(gaps)
        finally:
            ended.set()
            watcher.join()

    def test_an_update_under_load_keeps_the_work_and_a_downgrade_too(self):
        self.install()
        jobs = self.walks(40, steps=40)
        self.stepped(20)
        for version in ("1.1.0", "2.0.0", "1.0.0"):
            archive = self.archive if version == "1.0.0" else self.package(version)
            self.machine.download(archive, version)
            old = self.machine.worker()
            ran, gap = self.watched(lambda: self.succeed("update", version))
            figures(f"update to {version} under load: {ran.seconds:.1f} s, not healthy for {gap:.1f} s")
            self.assertEqual(self.current(), version)
            self.assertNotEqual(self.machine.worker(), old)
            self.assertLess(ran.seconds, 60)
        # The previous version is kept, and no older one.
        self.assertEqual(self.versions(), ["1.0.0", "2.0.0"])
        self.machine.run("/opt/reprieve/previous/update.sh")
        self.assertEqual((self.current(), self.versions()), ("2.0.0", ["1.0.0", "2.0.0"]))
        self.done_once(jobs, steps=40)
        self.assertEqual(self.repeated(), 0)
        drains = self.machine.log("drained")
        self.assertEqual(len(drains), 4)
        for drain in drains:
            figures(f"drained: {drain['held']} held, {drain['saved']} saved, in {drain['released_after_ms']} ms")
            self.assertEqual((drain["abandoned"], drain["cut"], drain["leases_lost"]), (0, 0, 0))

    def roll_back(self, worker, reason):
        self.install()
        jobs = self.walks(20, steps=50)
        self.stepped(20)
        self.machine.download(self.package("1.1.0", bin_worker=worker), "1.1.0")
        ran, gap = self.watched(lambda: self.machine.command("update", "1.1.0"))
        figures(f"rolled back: {ran.seconds:.1f} s, not healthy for {gap:.1f} s")
        self.assertEqual(ran.returncode, 13, ran.stderr)
        last = ran.stderr.splitlines()[-1]
        self.assertIn("version 1.1.0 is not healthy", last)
        self.assertIn(reason, last)
        self.assertIn("version 1.0.0 runs again", last)
        self.assertEqual((self.current(), self.versions()), ("1.0.0", ["1.0.0"]))
        self.assertTrue(self.machine.healthy())
        self.assertEqual(self.machine.show("ActiveState"), "active")
        self.done_once(jobs, steps=50)
        # A better version can be installed after it.
        self.machine.download(self.package("1.1.1", bin_worker=self.small), "1.1.1")
        self.succeed("update", "1.1.1")
        self.assertEqual((self.current(), self.versions()), ("1.1.1", ["1.0.0", "1.1.1"]))
        return ran

    def test_a_worker_that_exits_is_rolled_back(self):
        ran = self.roll_back(EXITS, "it exited 5 times")
        self.assertIn("no luck today", ran.stderr, "the log's end is in the output")
        self.assertLess(ran.seconds, 60)

    def test_a_worker_that_hangs_is_rolled_back(self):
        ran = self.roll_back(HANGS, "does not answer")
        # Though it ignores SIGTERM.
        self.assertLess(ran.seconds, 60)

    def test_a_worker_that_the_machine_cant_run_stops_nothing(self):
        self.install()
        before = self.machine.worker()
        self.machine.download(self.package("1.1.0", bin_worker=DOES_NOT_RUN), "1.1.0")
        ran = self.machine.command("update", "1.1.0")
        self.assertEqual(ran.returncode, 12)
        self.assertIn("version 1.0.0 continues to run", ran.stderr)
        self.assertEqual((self.machine.worker(), self.current()), (before, "1.0.0"))

    def test_an_incomplete_download_stops_nothing(self):
        self.install()
        before = self.machine.worker()
        self.machine.download(self.archive.read_bytes()[:100_000], "1.1.0")
        ran = self.machine.command("update", "1.1.0")
        self.assertEqual(ran.returncode, 10)
        self.assertEqual((self.machine.worker(), self.current()), (before, "1.0.0"))
        self.assertEqual(self.versions(), ["1.0.0"])

    def test_an_update_of_nothing_installs(self):
        self.machine.download(self.archive, "1.0.0")
        self.succeed("update", "1.0.0")
        self.machine.await_ready()

    def cut_update(self, version):
        """Kills an update when its new version starts."""
        update = threading.Thread(target=self.machine.command, args=("update", version))
        before = self.machine.worker()
        update.start()

        def starts():
            return self.machine.worker() not in (None, before) or self.machine.show("NRestarts") != "0"

        until("the new version starts", lambda: self.current() == version and starts())
        self.machine.run("pkill", "-KILL", "-f", f"^/bin/sh /opt/reprieve/versions/{version}/update.sh")
        update.join()
        self.assertEqual(self.current(), version)

    def goes_back(self, version, to):
        """Updates to a version that does not work."""
        self.machine.download(self.package(version, bin_worker=EXITS), version)
        ran = self.machine.command("update", version)
        self.assertEqual(ran.returncode, 13, ran.stderr)
        self.assertEqual(self.current(), to)
        self.assertTrue(self.machine.healthy())
        self.assertFalse(os.path.lexists(self.machine.root / "opt/reprieve/rollback"))

    def test_an_update_after_a_cut_one_returns_to_what_ran_last(self):
        self.use_small_worker()
        self.install()
        self.machine.download(self.package("1.1.0"), "1.1.0")
        self.cut_update("1.1.0")
        self.machine.await_ready()
        self.goes_back("1.2.0", "1.1.0")
        self.assertIn("1.1.0", self.versions())

    def test_what_was_killed_in_its_life_and_is_healthy_is_returned_to(self):
        self.use_small_worker()
        self.install()
        self.machine.download(self.package("1.1.0"), "1.1.0")
        self.cut_update("1.1.0")
        self.machine.await_ready()
        for _ in range(5):
            before = self.machine.worker()
            self.machine.run("kill", "-9", str(before))
            until("another worker runs", lambda: self.machine.worker() not in (None, before))
        self.machine.await_ready()
        self.assertEqual(self.machine.show("NRestarts"), "5")
        self.goes_back("1.2.0", "1.1.0")

    def test_an_installation_forgets_the_way_back_of_a_cut_update(self):
        self.use_small_worker()
        self.install()
        self.machine.download(self.package("1.1.0"), "1.1.0")
        self.cut_update("1.1.0")
        self.assertTrue(os.path.lexists(self.machine.root / "opt/reprieve/rollback"))
        self.succeed("install", "1.1.0")
        self.assertFalse(os.path.lexists(self.machine.root / "opt/reprieve/rollback"))
        self.goes_back("1.2.0", "1.1.0")

    def test_a_worker_that_is_never_ready_is_rolled_back(self):
        self.use_small_worker()
        self.install()
        self.machine.download(self.package("1.1.0", bin_worker=self.never_ready), "1.1.0")
        ran = self.machine.command("update", "1.1.0")
        self.assertEqual(ran.returncode, 13, ran.stderr)
        self.assertIn("reprieve-worker.service is activating: it has not reported that it is ready", ran.stderr)
        self.assertEqual(self.current(), "1.0.0")
        self.assertTrue(self.machine.healthy())

    def test_a_signal_in_the_drain_leaves_a_worker(self):
        self.install()
        self.machine.download(self.package("1.1.0", bin_worker=self.small), "1.1.0")
        self.walks(4, steps=400)
        for name, script, arguments, code in [
            ("TERM", "update.sh", ("update", "1.1.0"), 143),
            ("HUP", "update.sh", ("update", "1.1.0"), 129),
            ("TERM", "remove.sh", ("remove", "1.0.0"), 143),
        ]:
            with self.subTest(signal=name, script=script):
                begun = self.machine.steps(JOURNAL)
                self.stepped(begun + 4)
                before = self.machine.worker()
                # Without storage a drain takes all of its budget.
                self.machine.cut_off()
                with concurrent.futures.ThreadPoolExecutor() as pool:
                    running = pool.submit(self.machine.command, *arguments)
                    drains = lambda: self.machine.show("ActiveState") == "deactivating"  # noqa: E731
                    until("the worker drains", drains, every=0.01)
                    self.machine.run("pkill", f"-{name}", "-f", f"^/bin/sh /opt/reprieve/.*/{script}")
                    ran = running.result()
                self.machine.connect()
                self.assertEqual(ran.returncode, code, ran.stderr)
                self.assertIn("was started again", ran.stderr)
                until("a worker runs again", lambda: self.machine.worker() not in (None, before))
                self.machine.await_ready()
                self.assertEqual(self.current(), "1.0.0")

    def test_an_update_after_one_that_was_cut_returns_to_what_worked(self):
        self.use_small_worker()
        self.install()
        for version in ("1.1.0", "1.2.0"):
            self.machine.download(self.package(version, bin_worker=EXITS), version)
        self.cut_update("1.1.0")
        ran = self.machine.command("update", "1.2.0")
        self.assertEqual(ran.returncode, 13, ran.stderr)
        self.assertEqual((self.current(), self.versions()), ("1.0.0", ["1.0.0"]))
        self.assertTrue(self.machine.healthy())

    def test_a_reboot_in_the_middle_leaves_a_worker_and_a_way_back(self):
        self.use_small_worker()
        self.install()
        self.machine.download(self.package("1.1.0", bin_worker=HANGS), "1.1.0")
        # As a daemon, so that a failure does not wait for it.
        update = threading.Thread(target=self.machine.command, args=("update", "1.1.0"), daemon=True)
        update.start()
        until("the new version starts", lambda: self.current() == "1.1.0")
        # The boot goes on until the worker is ready, which this one never is.
        self.machine.reboot(states=("starting", "running", "degraded"))
        update.join()
        # The agent runs the command again: scriptBehaviorAfterReboot is Rerun.
        ran = self.machine.command("update", "1.1.0")
        self.assertEqual(ran.returncode, 13, ran.stderr)
        self.assertEqual(self.current(), "1.0.0")
        self.assertTrue(self.machine.healthy())


class Life(PackageTest):
    def test_a_killed_worker_is_back_with_its_jobs_in_seconds(self):
        self.install()
        jobs = self.walks(8, steps=60)
        self.stepped(40)
        before = self.machine.worker()
        begun = time.monotonic()
        self.machine.run("kill", "-9", before)
        until("another worker takes jobs", lambda: self.machine.worker() not in (None, before))
        self.machine.await_ready()
        back = time.monotonic() - begun
        until("messages of the dead are released", lambda: self.machine.log("released the messages of dead workers"))
        released = time.monotonic() - begun
        figures(f"killed: ready again after {back:.1f} s, its messages released after {released:.1f} s")
        self.assertLess(released, 20, "sooner than the lease of 60 s")
        self.done_once(jobs, steps=60)
        figures(f"killed: {self.repeated()} of 480 steps done again")

    def test_a_worker_without_memory_is_back_with_its_jobs(self):
        self.install()
        jobs = self.walks(3, steps=60)
        self.stepped(3)
        worker = self.machine.outside(self.machine.worker())
        # From outside, because a container can't limit itself here.
        group = Path("/sys/fs/cgroup/memory/reprieve-test")
        if not group.parent.joinpath("memory.limit_in_bytes").exists():
            reason = "OUT OF MEMORY IS NOT TESTED: this machine has no memory controller of cgroups v1"
            self.fail(reason) if NEEDED else self.skipTest(reason)
        group.mkdir(exist_ok=True)
        self.addCleanup(group.rmdir)
        group.joinpath("memory.limit_in_bytes").write_text(str(64 << 20))
        group.joinpath("memory.swappiness").write_text("0")
        group.joinpath("cgroup.procs").write_text(str(worker))
        before = self.machine.worker()
        # 80 MB of state, which the next worker has room for.
        bulky = self.fleet.enqueue("bulky", [{"floats": 10_000_000, "steps": 1, "saves": False}])
        until("the worker is killed", lambda: self.machine.worker() not in (None, before))
        self.machine.await_ready()
        until("every job has a result", lambda: self.fleet.results() >= {*jobs, *bulky}, 120)
        self.assertEqual(self.fleet.results(), {*jobs, *bulky})
        self.assertEqual(self.fleet.status()["queue"]["poisoned"], 0)
        kills = group.joinpath("memory.oom_control").read_text()
        figures(f"out of memory: {kills.split()}; restarts: {self.machine.show('NRestarts')}")
        self.assertIn("oom_kill 1", kills)

    def test_a_worker_that_hangs_is_killed_by_the_watchdog(self):
        self.install()
        jobs = self.walks(2, steps=300)
        self.stepped(4)
        before = self.machine.worker()
        begun = time.monotonic()
        self.machine.run("kill", "-STOP", before)
        until("another worker runs", lambda: self.machine.worker() not in (None, before), 90)
        figures(f"hung: killed and restarted after {time.monotonic() - begun:.1f} s")
        self.assertIn("Watchdog timeout", self.machine.run("journalctl", "-u", "reprieve-worker").stdout)
        self.machine.await_ready()
        self.done_once(jobs, steps=300)

    def drained(self, notice):
        drain = until("the drain's line", lambda: self.machine.log("drained"))[0]
        figures(
            f"{notice}: {drain['held']} held, {drain['saved']} saved, released in {drain['released_after_ms']} ms, "
            f"{drain['budget_left_ms']} ms left, {drain['work_lost_ms']} ms of work lost"
        )
        self.assertEqual(drain["notice"], notice)
        self.assertEqual((drain["held"], drain["saved"]), (4, 4))
        self.assertEqual((drain["abandoned"], drain["cut"], drain["unconfirmed"]), (0, 0, 0))
        self.assertLess(drain["released_after_ms"], 10_000)

    def test_a_worker_without_storage_is_healthy_and_goes_on_after_it(self):
        self.install()
        jobs = self.walks(8, steps=60)
        self.stepped(20)
        before = self.machine.worker()
        self.machine.cut_off()
        time.sleep(30)
        self.assertTrue(self.machine.healthy(), "another machine would have no storage either")
        self.assertEqual((self.machine.worker(), self.machine.show("NRestarts")), (before, "0"))
        self.machine.connect()
        begun = time.monotonic()
        self.done_once(jobs, steps=60)
        after = time.monotonic() - begun
        figures(f"30 s without storage: all done {after:.1f} s after it, {self.repeated()} steps again")

    def done_once_soon(self, jobs):
        """Checks that jobs of 60 steps go on at once: no message waits for the end of a lease, 60 s."""
        self.done_once(jobs, steps=60, patience=45)
        self.assertEqual(self.repeated(), 0)

    def test_sigterm_drains(self):
        self.install()
        jobs = self.walks(8, steps=60)
        self.stepped(20)
        begun = time.monotonic()
        self.machine.run("systemctl", "stop", "reprieve-worker")
        figures(f"systemctl stop: {time.monotonic() - begun:.1f} s")
        self.drained("Signal")
        self.assertEqual(self.machine.show("Result"), "success")
        self.assertEqual(self.machine.show("ExecMainStatus"), "0")
        self.assertEqual(self.fleet.status()["queue"]["total"], 8)
        self.machine.run("systemctl", "start", "reprieve-worker")
        self.done_once_soon(jobs)

    def test_a_preempt_drains(self):
        self.install()
        jobs = self.walks(8, steps=60)
        self.stepped(20)
        self.fleet.event("evict", "--vm", self.machine.name, "--notice", "30s")
        self.drained("Preempt")
        self.assertTrue(self.machine.healthy(), "a drain is no reason to replace the machine")
        self.assertEqual(self.fleet.status()["queue"]["total"], 8)
        self.fleet.event("evict", "--vm", self.machine.name, "--withdraw")
        self.done_once_soon(jobs)

    def test_a_reboot_drains_and_the_worker_is_back(self):
        self.install()
        jobs = self.walks(8, steps=60)
        self.stepped(20)
        self.fleet.event("announce", "--type", "Reboot", "--vms", self.machine.name, "--notice", "20s")
        self.drained("Reboot")
        begun = time.monotonic()
        self.machine.reboot()
        booted = time.monotonic() - begun
        self.fleet.event("event", "complete", "--vm", self.machine.name)
        self.machine.await_ready()
        figures(f"reboot: booted after {booted:.1f} s, ready after {time.monotonic() - begun:.1f} s")
        self.done_once_soon(jobs)

    def test_a_reboot_without_an_event_loses_nothing(self):
        self.install()
        jobs = self.walks(8, steps=60)
        self.stepped(20)
        self.machine.reboot()
        self.machine.await_ready()
        self.drained("Signal")
        self.done_once_soon(jobs)

    def test_it_leaves_nothing_but_its_settings(self):
        settings = self.machine.root / "etc/reprieve/worker.env"
        content = settings.read_text()
        self.install()
        self.walks(8, steps=600)
        self.stepped(20)
        for attempt in ("first", "second"):
            ran = self.succeed("remove", "1.0.0")
            figures(f"{attempt} remove: {ran.seconds:.1f} s")
            self.assertEqual(self.traces("bin/worker"), [])
        self.assertEqual(len(self.machine.log("drained")), 1)
        self.assertEqual(self.fleet.status()["queue"]["total"], 8)
        self.assertEqual(settings.read_text(), content)
        owner = self.machine.run("stat", "-c", "%a %U %G", "/etc/reprieve/worker.env").stdout
        self.assertEqual(owner, "640 root root\n")
        # Added again, which is how the failed installation of a version is repeated.
        self.install()
        self.stepped(1)

    def test_the_jobs_of_an_embedded_store_stay(self):
        self.machine.write_environment(REPRIEVE_STORE="sqlite:jobs.db")
        self.install()
        ran = self.succeed("remove", "1.0.0")
        self.assertIn("/var/lib/reprieve stays", ran.stdout)
        self.assertTrue((self.machine.root / "var/lib/reprieve/jobs.db").exists())
        self.install()
        # Also when the settings name another store by now.
        self.machine.write_environment()
        self.succeed("remove", "1.0.0")
        self.assertTrue((self.machine.root / "var/lib/reprieve/jobs.db").exists())
        self.install()
        self.machine.run("sh", "-c", "rm -r /var/lib/reprieve/jobs.db*")
        self.succeed("remove", "1.0.0")
        self.assertEqual(self.traces("bin/worker"), [])

    def test_wrong_settings_are_named_and_can_be_removed(self):
        self.machine.write_environment(REPRIEVE_INSTANCES="many")
        self.machine.download(self.archive, "1.0.0")
        ran = self.machine.command("install", "1.0.0")
        self.assertEqual(ran.returncode, 11)
        self.assertIn('REPRIEVE_INSTANCES in /etc/reprieve/worker.env is "many"', ran.stderr)
        self.assertIsNone(self.machine.worker())
        self.succeed("remove", "1.0.0")
        self.assertEqual(self.traces("bin/worker"), [])

    def test_a_removal_without_an_installation_succeeds(self):
        self.machine.download(None, "1.0.0")
        self.succeed("remove", "1.0.0")
        self.assertEqual(self.traces("bin/worker"), [])


class ScaleSet(PackageTest):
    """Three machines of one set, each with its own address of the metadata service."""

    JOBS = 300
    # Enqueued at three stages, so that there is work at each however fast or slow this machine is. The last are few,
    # because one machine does them.
    PARTS = (130, 120, 50)
    STEPS = 24
    # The jobs of a machine that dies wait for the end of their leases.
    LEASE = 20

    def setUp(self):
        self.fleet = self.enterContext(Fleet(BINARIES, machines=3))
        self.begun = time.monotonic()

    def report(self, text):
        done = len(self.fleet.results())
        figures(f"{time.monotonic() - self.begun:5.1f} s, {done:3} of {self.JOBS} jobs done: {text}")

    def works(self, machine, more=5):
        """Waits until a machine takes jobs and begins steps."""
        machine.await_ready()
        begun = machine.steps(JOURNAL)
        until(f"{machine.name} works", lambda: machine.steps(JOURNAL) >= begun + more)

    def evict(self, machine):
        """Ends a machine by an announced eviction, and checks that it gave its jobs back before."""
        drains = len(machine.log("drained"))
        self.fleet.event("evict", "--vm", machine.name, "--notice", "30s")
        until(f"{machine.name} has drained", lambda: len(machine.log("drained")) > drains)
        drained = machine.log("drained")[-1]
        self.assertEqual((drained["cut"], drained["abandoned"], drained["leases_lost"]), (0, 0, 0), drained)
        self.fleet.event("event", "start", "--vm", machine.name)
        machine.kill()
        return f"released {drained['held']} jobs in {drained['released_after_ms']} ms"

    def test_300_jobs_are_done_once_whatever_happens_to_the_machines(self):
        first, second, third = machines = self.fleet.machines
        for machine in machines:
            machine.write_environment(REPRIEVE_LEASE=f"{self.LEASE}s")
            machine.download(self.archive, "1.0.0")
        with concurrent.futures.ThreadPoolExecutor() as pool:
            list(pool.map(lambda machine: self.succeed("install", "1.0.0", machine), machines))
        for machine in machines:
            machine.await_ready()
            self.assertEqual([line["vm"] for line in machine.log("worker started")], [machine.name])
        jobs = self.walks(self.PARTS[0], self.STEPS)
        for machine in machines:
            self.works(machine)

        # One after another, as a rolling upgrade of the set.
        update = self.package("1.1.0")
        for machine in machines:
            machine.download(update, "1.1.0")
            self.succeed("update", "1.1.0", machine)
            self.assertTrue(machine.healthy(), machine.name)
        self.report("all machines updated, one after another")
        jobs += self.walks(self.PARTS[1], self.STEPS)
        for machine in machines:
            self.works(machine)

        second.cut_off()
        cut_off = time.monotonic()
        self.report(f"{third.name} deallocated: {self.evict(third)}")
        self.fleet.event("event", "complete", "--vm", third.name)
        third.boot()
        third.await_boot()
        self.works(third)
        self.report(f"{third.name} is back with its disk")

        first.kill()
        self.report(f"{first.name} scaled in without notice")
        time.sleep(max(0, cut_off + 90 - time.monotonic()))
        self.assertTrue(second.healthy(), "another machine would have no storage either")
        self.assertEqual(second.show("NRestarts"), "0")
        jobs += self.walks(self.PARTS[2], self.STEPS)
        second.connect()
        self.works(second)
        self.report(f"{second.name} works again after 90 s without storage")

        self.report(f"{third.name} deleted: {self.evict(third)}")
        self.fleet.event("vm", "remove", third.name)
        self.assertLess(len(self.fleet.results()), self.JOBS, "the machines ended among the jobs, not after them")
        self.assertEqual(len(jobs), self.JOBS)
        self.done_once(jobs, self.STEPS, patience=240)
        outputs = set(self.fleet.reprieve("blobs", "list", "walks/").split())
        self.assertEqual(outputs, {f"walks/{job}/{step}" for job in jobs for step in range(self.STEPS)})
        self.report("all done")


class Logs(PackageTest):
    """The way of a line to the workspace: journald, rsyslog, and the port that the Azure Monitor agent
    listens on. The agent itself can't run here."""

    # The agent writes this file. https://learn.microsoft.com/azure/azure-monitor/vm/data-collection-syslog
    OF_THE_AGENT = """
template(name="AMA_RSYSLOG_TraditionalForwardFormat" type="string" string="<%PRI%>%TIMESTAMP% %HOSTNAME% %syslogtag%%msg:::sp-if-no-1st-sp%%msg%")
*.* action(type="omfwd"
template="AMA_RSYSLOG_TraditionalForwardFormat"
queue.type="LinkedList"
queue.filename="omfwd-azuremonitoragent"
queue.maxFileSize="32m"
queue.maxDiskSpace="1g"
action.resumeRetryCount="-1"
action.resumeInterval="5"
action.reportSuspension="on"
action.reportSuspensionContinuation="on"
queue.size="25000"
queue.workerThreads="100"
queue.dequeueBatchSize="2048"
queue.saveonshutdown="on"
target="127.0.0.1" Port="28330" Protocol="tcp")
"""
    LINE = re.compile(r"<(\d+)>\w{3} [ \d]\d \d\d:\d\d:\d\d (\S+) (reprieve-\w+)(?:\[\d+\])?: (.*)")

    def listen(self):
        """Stands in for the agent in the machine, and returns what it has received."""
        received = bytearray()

        class Connection(socketserver.BaseRequestHandler):
            def handle(self):
                while data := self.request.recv(1 << 16):
                    received.extend(data)

        server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Connection)
        server.daemon_threads = True
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.fleet.forward(f"{self.machine.namespace}/127.0.0.1:28330", f"-/127.0.0.1:{server.server_address[1]}")
        return received

    def first_boot(self):
        """Writes what the cloud-init file of the evaluated template writes for the report."""
        text = (fleet.REPOSITORY / "infra/cloud-init.yaml").read_text()
        unit = text.split("path: /etc/systemd/system/reprieve-report.service")[1].split("content: |\n")[1]
        lines = itertools.takewhile(lambda line: line.startswith("      ") or not line, unit.splitlines())
        program = self.machine.root / "usr/local/lib/reprieve/report.py"
        program.parent.mkdir(parents=True)
        program.write_bytes((fleet.REPOSITORY / "infra/vm/report.py").read_bytes())
        service = self.machine.root / "etc/systemd/system/reprieve-report.service"
        service.write_text(textwrap.dedent("\n".join(lines)) + "\n")

    def test_the_agent_gets_every_line_of_the_worker_and_of_the_report_whole(self):
        received = self.listen()
        (self.machine.root / "etc/rsyslog.d/10-azuremonitoragent-omfwd.conf").write_text(self.OF_THE_AGENT)
        self.machine.run("systemctl", "restart", "rsyslog")
        self.first_boot()
        self.install()
        jobs = self.walks(20)
        # A line that rsyslog would cut, and its object with it.
        [failed] = self.fleet.enqueue("fail", [{"fatal": True, "journal": JOURNAL, "logs_bytes": 30_000}])
        self.done_once(jobs, poisoned=1)
        self.machine.run("systemctl", "start", "reprieve-report", check=False)

        def lines():
            found = collections.defaultdict(list)
            for line in received.decode().splitlines():
                if re.match(r"<\d+>.{15} \S+ reprieve-", line):
                    whole = self.LINE.fullmatch(line)
                    self.assertTrue(whole, f"cut, or not as expected: {line}")
                    priority, host, program, message = whole.groups()
                    self.assertEqual((int(priority) >> 3, host), (19, self.machine.namespace), line)
                    found[program].append(json.loads(message))
            return found

        def ended():
            runs = [line for line in lines()["reprieve-worker"] if line["message"] == "the job's run ended"]
            return collections.Counter(line["job"] for line in runs)

        def reports():
            return [line["report"] for line in lines()["reprieve-report"]]

        until("the report's metrics arrive", lambda: "metrics" in reports())
        until("the last job's line arrives", lambda: set(ended()) == {*jobs, failed})
        self.assertEqual(set(ended().values()), {1})
        self.assertEqual(len(lines()["reprieve-worker"]), len(self.machine.log()))
        [long] = [line["text"] for line in lines()["reprieve-worker"] if "text" in line]
        self.assertRegex(long, "^x{1000,7000}…$")
        figures(f"{sum(map(len, lines().values()))} lines reached the agent's port")


class Instances(PackageTest):
    def test_an_instance_with_an_address_of_its_own_is_asked_there(self):
        self.use_small_worker()
        self.machine.write_environment(REPRIEVE_INSTANCES="2")
        settings = self.machine.root / "etc/reprieve/worker.env"
        for i in (1, 2):
            # systemd takes spaces there.
            settings.with_name(f"worker@{i}.env").write_text(f"REPRIEVE_LISTEN = 127.0.0.1:{9100 + i}\n")
        self.machine.download(self.archive, "1.0.0")
        self.succeed("install", "1.0.0")
        until("both answer", lambda: all(self.machine.get("/healthz", 9100 + i) for i in (1, 2)))
        self.machine.download(self.package("1.1.0", bin_worker=UNHEALTHY), "1.1.0")
        ran = self.machine.command("update", "1.1.0")
        self.assertEqual(ran.returncode, 13, ran.stdout + ran.stderr)
        self.assertIn('127.0.0.1:9101/healthz answers {"ApplicationHealthState":"Unhealthy"}', ran.stderr)
        self.assertEqual(self.current(), "1.0.0")

    def test_several_instances_on_a_machine(self):
        # One of them answers for both.
        self.machine.write_environment(REPRIEVE_INSTANCES="2", REPRIEVE_LISTEN="127.0.0.1:9091")
        self.machine.download(self.archive, "1.0.0")
        self.succeed("install", "1.0.0")
        units = ["reprieve-worker@1.service", "reprieve-worker@2.service"]
        until("both run", lambda: all(self.machine.worker(unit) for unit in units))
        pids = [self.machine.worker(unit) for unit in units]
        self.assertEqual(len(set(pids)), 2)
        until("one takes jobs", lambda: self.machine.get("/readyz", 9091) is not None)
        self.machine.run("kill", "-9", str(pids[0]))
        until("the other one answers", lambda: self.machine.get("/healthz", 9091) is not None)
        until("both run again", lambda: all(self.machine.worker(unit) for unit in units))
        pids = [self.machine.worker(unit) for unit in units]
        self.machine.download(self.package("1.1.0"), "1.1.0")
        ran = self.succeed("update", "1.1.0")
        figures(f"update of two instances: {ran.seconds:.1f} s")
        self.assertTrue(set(pids).isdisjoint(self.machine.worker(unit) for unit in units))
        # One instance again.
        self.machine.write_environment()
        self.succeed("install", "1.1.0")
        self.machine.await_ready()
        self.assertEqual([self.machine.worker(unit) for unit in units], [None, None])
        self.succeed("remove", "1.1.0")
        self.assertEqual(self.traces("bin/worker"), [])


def prepare(directory):
    packages.build(XTASK, BINARIES / "test-jobs", "1.0.0", directory)
    packages.commands(directory)
    packages.small(directory)


def setUpModule():
    directory = os.environ.get("REPRIEVE_TEST_PACKAGES")
    if directory is None:
        directory = tempfile.mkdtemp(prefix="reprieve-packages-")
        unittest.addModuleCleanup(shutil.rmtree, directory)
        prepare(directory)
    PackageTest.archive = Path(directory) / packages.NAME
    PackageTest.small = (Path(directory) / "small").read_bytes()
    PackageTest.never_ready = (Path(directory) / "never-ready").read_bytes()
    fleet.Machine.commands = Path(directory)


class Names:
    """Lists the chosen tests instead of running them: those of the classes with the longest ones first."""

    def run(self, tests):
        flat = [test for suite in tests for test in (suite if isinstance(suite, unittest.TestSuite) else [suite])]
        first = {kind: place for place, kind in enumerate([ScaleSet, Cut, Update, Life])}
        flat.sort(key=lambda test: first.get(type(test), len(first)))
        self.names = [".".join(test.id().split(".")[-2:]) for test in flat]
        return unittest.TestResult()


def run_each(count):
    """Runs each test in namespaces of its own, several at a time; returns the exit code."""
    names = Names()
    arguments = [argument for argument in sys.argv if not argument.startswith("--jobs=")]
    unittest.main(argv=arguments, exit=False, testRunner=names)

    def run(name):
        begun = time.monotonic()
        command = [sys.executable, sys.argv[0], name]
        # A file, and no pipe: what a test has left running would keep that open.
        with open(Path(directory) / f"{name}.log", "w+", errors="replace") as log:
            test = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            try:
                code = test.wait(LIMIT + 60)
            except subprocess.TimeoutExpired:
                test.kill()
                code = "not ended"
            log.seek(0)
            seconds = time.monotonic() - begun
            print(f"{log.read().strip()}\n{name}: {seconds:.0f} s\n", file=sys.stderr, flush=True)
        return name if code else None

    with tempfile.TemporaryDirectory(prefix="reprieve-packages-") as directory:
        prepare(directory)
        environment = os.environ | {"REPRIEVE_TEST_PACKAGES": directory}
        with concurrent.futures.ThreadPoolExecutor(count) as pool:
            failed = list(filter(None, pool.map(run, names.names)))
    print(f"{len(names.names)} tests, {len(failed)} failed: {' '.join(failed)}", file=sys.stderr)
    return 1 if failed or not names.names else 0


if __name__ == "__main__":
    if lacks := fleet.missing():
        said = f"THE PACKAGE IS NOT TESTED ON A REAL SYSTEMD: this machine lacks {', '.join(lacks)}"
        sys.exit(said if NEEDED else print(said, file=sys.stderr))
    for argument in sys.argv:
        if argument.startswith("--jobs="):
            sys.exit(run_each(int(argument.removeprefix("--jobs="))))
    fleet.isolate()
    faulthandler.dump_traceback_later(LIMIT, exit=True)
    unittest.main(testRunner=unittest.TextTestRunner(verbosity=2, resultclass=Result))
