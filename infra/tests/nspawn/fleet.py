"""Machines with a real systemd, as a scale set: containers of systemd-nspawn on a bridge, each with
Azure's metadata service on 169.254.169.254 and a storage account that all of them reach.

A machine's root is an overlay over this machine's own. It survives a reboot of the machine, and is
gone with the fleet. Everything runs in private namespaces, so fleets side by side don't meet, and a
killed test leaves nothing. Needs root, systemd-nspawn and the repository's binaries.
"""

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]
# The address of storage on the bridge, and of the control of both mocks.
HUB = "10.99.0.1"
BLOB_PORT, QUEUE_PORT, METADATA_PORT = 10000, 10001, 8169
AGENT = "/var/lib/waagent/Microsoft.CPlat.Core.VMApplicationManagerLinux/reprieve-worker"
# The environment of a command that the agent runs.
AGENT_ENVIRONMENT = ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C"]
# The names of a machine's process 1: in its last phase it becomes a program of its own, which ends the processes that are left.
PROCESS_1 = ("systemd\n", "systemd-shutdow\n")
# nspawn's exit code for a reboot, with --keep-unit: whoever started it is to do so again.
REBOOT = 133
# Seconds, because the machine of the tests may be busy.
PATIENCE = 60


def missing():
    """Returns what this machine lacks for a fleet."""
    lacks = [] if os.geteuid() == 0 else ["root"]
    for tool, package in [
        ("systemd-nspawn", "systemd-container"),
        ("nsenter", "util-linux"),
        ("unshare", "util-linux"),
        ("ip", "iproute2"),
        ("strace", "strace"),
        ("curl", "curl"),
        ("rsyslogd", "rsyslog"),
        ("strip", "binutils"),
        ("cc", "gcc libc6-dev"),
    ]:
        if shutil.which(tool) is None:
            lacks.append(f"{tool} (apt-get install {package})")
    return lacks


def isolate():
    """Runs this program again in private namespaces, which end with it. Returns in the copy."""
    if os.environ.get("REPRIEVE_NSPAWN_ISOLATED") == str(os.getpid()):
        subprocess.run(["mount", "--make-rprivate", "/"], check=True)
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        # nspawn empties its directory between two boots of a machine only if it is not on a disk.
        for directory in ("/run/netns", "/run/systemd/nspawn"):
            Path(directory).mkdir(parents=True, exist_ok=True)
            subprocess.run(["mount", "-t", "tmpfs", "tmpfs", directory], check=True)
        return
    # The copy is process 1 of its namespace: the kernel kills all others with it.
    os.environ["REPRIEVE_NSPAWN_ISOLATED"] = "1"
    unshare = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    os.execvp("unshare", [*unshare, sys.executable, *sys.argv])


def until(what, check, patience=PATIENCE, every=0.1):
    """Waits until `check` returns something true, and returns it."""
    end = time.monotonic() + patience
    while True:
        if found := check():
            return found
        if time.monotonic() > end:
            raise AssertionError(f"{patience} s passed, and not yet: {what}")
        time.sleep(every)


class Fleet:
    """A storage account, a metadata service, and machines."""

    def __init__(self, binaries, machines=1, queue="work"):
        self.binaries, self.queue = Path(binaries), queue
        self.names = [f"workers_{index}" for index in range(machines)]
        self.stack = contextlib.ExitStack()
        self.machines = []

    def __enter__(self):
        try:
            self._start()
        except BaseException:
            self.stack.close()
            raise
        return self

    def __exit__(self, *_):
        self.stack.close()

    def _start(self):
        self.directory = Path(tempfile.mkdtemp(prefix="reprieve-nspawn-"))
        self.stack.callback(shutil.rmtree, self.directory, ignore_errors=True)
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", self.directory], check=True)
        self.stack.callback(subprocess.run, ["umount", "-l", self.directory])
        ip("link add br0 type bridge")
        self.stack.callback(ip, "link delete br0")
        ip(f"address add {HUB}/24 dev br0")
        ip("link set br0 up")

        ports = ["--blob-port", str(BLOB_PORT), "--queue-port", str(QUEUE_PORT), "--json"]
        served = self.serve("storage", [self.binaries / "reprieve", "storage", "serve", *ports])
        self.store = json.loads(served)["connection_string"]
        for port in (BLOB_PORT, QUEUE_PORT):
            self.forward(f"-/{HUB}:{port}", f"-/127.0.0.1:{port}")
        self.serve(
            "metadata",
            [self.binaries / "reprieve", "metadata", "serve", "--port", str(METADATA_PORT), "--port-each"]
            + ["--vms", ",".join(self.names), "--started-for", "5m"],
        )
        for index, name in enumerate(self.names):
            self.machines.append(Machine(self, index, name))
        for machine in self.machines:
            machine.start()
        for machine in self.machines:
            machine.await_boot()

    def serve(self, name, command):
        """Starts a program of the hub, and returns its first line."""
        with open(self.directory / f"{name}.log", "w") as log:
            process = subprocess.Popen(
                list(map(str, command)), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True
            )
        self.stack.callback(stop, process)
        line = process.stdout.readline()
        assert line, f"{name} has failed: {(self.directory / f'{name}.log').read_text()}"
        return line

    def forward(self, listen, target):
        program = Path(__file__).with_name("forward.py")
        self.serve(f"forward-{listen}-{target}".replace("/", "_"), [sys.executable, program, listen, target])

    @property
    def machine(self):
        return self.machines[0]

    def reprieve(self, *arguments, data=None):
        """Runs the command `reprieve` outside the machines, and returns its output."""
        environment = {"PATH": os.environ["PATH"], "REPRIEVE_STORE": self.store, "REPRIEVE_QUEUE": self.queue}
        ran = subprocess.run(
            [self.binaries / "reprieve", *arguments], env=environment, input=data, capture_output=True, text=True
        )
        assert ran.returncode == 0, f"reprieve {arguments}: {ran.stderr}"
        return ran.stdout

    def enqueue(self, kind, arguments):
        """Enqueues a job for each of the arguments, and returns their ids."""
        lines = "".join(json.dumps(one) + "\n" for one in arguments)
        return self.reprieve("enqueue", kind, "--force", "--jsonl", "-", data=lines).split()

    def status(self):
        return json.loads(self.reprieve("status", "--json"))

    def results(self):
        """Returns the ids of all jobs with a result."""
        names = self.reprieve("blobs", "list", "results/").split()
        return {name.removeprefix("results/").removesuffix(".json") for name in names}

    def result(self, job):
        return json.loads(self.reprieve("blobs", "get", f"results/{job}.json"))

    def event(self, *arguments):
        """Runs `reprieve metadata` on the mock, such as `evict --vm NAME`."""
        return self.reprieve("metadata", *arguments, "--url", f"http://127.0.0.1:{METADATA_PORT}")


class Machine:
    """A machine of the fleet."""

    # The folder with the application's commands.
    commands = REPOSITORY / "infra/package/commands"

    def __init__(self, fleet, index, name):
        self.fleet, self.index, self.name = fleet, index, name
        self.namespace = f"vm{index}"
        self.directory = fleet.directory / self.namespace
        self.root = self.directory / "root"
        self.console = self.directory / "console.log"
        self.nspawn = None

    def start(self):
        """Makes the network and the root, and boots."""
        veth, address = f"v{self.index}", f"10.99.0.{10 + self.index}"
        ip(f"netns add {self.namespace}")
        self.fleet.stack.callback(ip, f"netns delete {self.namespace}")
        ip(f"link add {veth} type veth peer name eth0 netns {self.namespace}")
        # The kernel removes a namespace, and what is in it, only some time after its last process.
        self.fleet.stack.callback(ip, f"link delete {veth}")
        ip(f"link set {veth} master br0 up")
        for command in [
            "link set lo up",
            "address add 169.254.169.254/32 dev lo",
            f"address add {address}/24 dev eth0",
            "link set eth0 up",
        ]:
            ip(f"-n {self.namespace} {command}")
        self.fleet.forward(f"{self.namespace}/169.254.169.254:80", f"-/127.0.0.1:{METADATA_PORT + self.index}")

        for part in ("upper", "work", "root"):
            (self.directory / part).mkdir(parents=True)
        layers = f"lowerdir=/,upperdir={self.directory}/upper,workdir={self.directory}/work"
        subprocess.run(["mount", "-t", "overlay", "overlay", "-o", layers, self.root], check=True)
        self.fleet.stack.callback(subprocess.run, ["umount", "-l", self.root])
        # As in an image: a journal that survives a reboot, and no identity of another machine.
        (self.root / "var/log/journal").mkdir(parents=True, exist_ok=True)
        (self.root / "etc/machine-id").write_text(f"{self.index + 1:032x}\n")
        (self.root / "etc/hostname").write_text(f"{self.namespace}\n")
        self.write_environment()
        self.fleet.stack.callback(self.kill)
        self.boot()

    def write_environment(self, **changes):
        """Writes the worker's settings, as cloud-init does at the first boot."""
        store = self.fleet.store.replace("127.0.0.1", HUB)
        settings = {
            "REPRIEVE_STORE": store,
            "REPRIEVE_QUEUE": self.fleet.queue,
            "AZURE_CLIENT_ID": "11111111-2222-3333-4444-555555555555",
            "REPRIEVE_LISTEN": "127.0.0.1:9090",
            "REPRIEVE_STATE_DIR": "/run/reprieve",
            "REPRIEVE_CONCURRENCY": "4",
            "REPRIEVE_LOG_FORMAT": "json",
            # The line of each completed job.
            "REPRIEVE_LOG": "info,reprieve_core=debug",
            "REPRIEVE_INSTANCES": "1",
            "MALLOC_MMAP_THRESHOLD_": "1048576",
            "MALLOC_TRIM_THRESHOLD_": "1048576",
        } | changes
        path = self.root / "etc/reprieve/worker.env"
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        path.chmod(0o640)

    def boot(self):
        # The log stays open in nspawn.
        with open(self.console, "ab") as console:
            self.nspawn = subprocess.Popen(
                ["systemd-nspawn", "--quiet", f"--directory={self.root}", f"--machine={self.namespace}"]
                + ["--register=no", "--keep-unit", f"--network-namespace-path=/run/netns/{self.namespace}"]
                + ["--resolv-conf=off", "--timezone=off", "--link-journal=no", "--console=pipe"]
                + ["--boot", "systemd.unit=multi-user.target"],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
            )

    def leader(self):
        """Returns the process id of the machine's process 1, or None between two boots."""
        children = Path(f"/proc/{self.nspawn.pid}/task/{self.nspawn.pid}/children").read_text().split()
        for child in children:
            with contextlib.suppress(OSError):
                if Path(f"/proc/{child}/comm").read_text() in PROCESS_1:
                    return int(child)
        return None

    def await_boot(self, other_than=None, states=("running", "degraded")):
        def booted():
            if self.nspawn.poll() == REBOOT:
                self.boot()
            assert self.nspawn.poll() is None, f"the machine has ended: {self.console.read_text()}"
            leader = self.leader()
            if leader is None or leader == other_than:
                return False
            state = self.run("systemctl", "is-system-running", check=False).stdout.strip()
            return state in states

        until(f"{self.namespace} has booted", booted, patience=PATIENCE + 60)

    def reboot(self, **options):
        before = self.leader()
        self.run("systemctl", "reboot", check=False)

        def is_down():
            return self.nspawn.poll() is not None or self.leader() != before

        try:
            # A shutdown gives what does not end 90 s, units and then processes.
            until(f"{self.namespace} is down", is_down, patience=PATIENCE + 180)
        except AssertionError:
            # Seen on a busy host: process 1 stays behind when everything else has ended. A platform switches it off.
            print(f"    {self.namespace} did not go down, and is switched off")
            self.kill()
            self.boot()
        self.await_boot(other_than=before, **options)

    def cut_off(self):
        """Cuts the machine off from storage. Its metadata service still answers."""
        ip(f"link set v{self.index} down")

    def connect(self):
        ip(f"link set v{self.index} up")

    def kill(self):
        """Ends the machine as an eviction without notice does."""
        if self.nspawn is None or self.nspawn.poll() is not None:
            return
        if leader := self.leader():
            with contextlib.suppress(ProcessLookupError):
                os.kill(leader, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.nspawn.wait(20)
        stop(self.nspawn)

    def enter(self, *command, directory="/"):
        """Returns a command line that runs a command in the machine."""
        leader = self.leader()
        assert leader, f"{self.namespace} does not run"
        inside = ["env", "-i", *AGENT_ENVIRONMENT, "sh", "-c", 'cd "$0" && exec "$@"', directory]
        return ["nsenter", f"--target={leader}", "--all", "--", *inside, *map(str, command)]

    def journal(self, *arguments):
        """Returns lines of the machine's journal, of all boots; also when it does not run."""
        command = ["journalctl", f"--directory={self.root}/var/log/journal", "--no-pager", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True, errors="replace").stdout

    def run(self, *command, check=True, directory="/"):
        """Runs a command in the machine, as root."""
        ran = subprocess.run(
            self.enter(*command, directory=directory), stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        if check and ran.returncode != 0:
            raise AssertionError(f"{shlex.join(map(str, command))}: {ran.returncode}: {ran.stdout}{ran.stderr}")
        return ran

    def download(self, archive, version):
        """Lays an archive out as the agent does; `archive` is a file, its content, or None."""
        folder = self.root / AGENT.lstrip("/") / version
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        target = folder / "worker.tgz"
        target.unlink(missing_ok=True)
        if isinstance(archive, bytes):
            target.write_bytes(archive)
        elif archive is not None:
            shutil.copyfile(archive, target)

    def command(self, name, version, shell="/bin/sh", tracer=()):
        """Runs a command of the application as the agent does: its text, in the download folder."""
        text = (self.commands / f"{name}.sh").read_text()
        line = self.enter("sh", "-c", 'umask 077; exec "$@"', "sh", shell, "-c", text, directory=f"{AGENT}/{version}")
        begun = time.monotonic()
        ran = subprocess.run(
            [*tracer, *line], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace"
        )
        ran.seconds = time.monotonic() - begun
        return ran

    def show(self, name, unit="reprieve-worker.service"):
        return self.run("systemctl", "show", f"--property={name}", "--value", unit).stdout.strip()

    def worker(self, unit="reprieve-worker.service"):
        """Returns the process id of the worker in the machine, or None."""
        return int(self.show("MainPID", unit) or 0) or None

    def outside(self, pid):
        """Returns the process id here of a process in the machine."""
        for status in Path("/proc").glob("[0-9]*/status"):
            with contextlib.suppress(OSError):
                ids = next(line for line in status.read_text().splitlines() if line.startswith("NSpid:")).split()
                namespace = os.readlink(status.with_name("ns") / "pid")
                if ids[-1] == str(pid) and namespace == os.readlink(f"/proc/{self.leader()}/ns/pid"):
                    return int(status.parent.name)
        raise AssertionError(f"process {pid} is not in {self.namespace}")

    def get(self, path, port=9090):
        """Asks the worker's endpoints; returns the body, or None without an answer of 200."""
        curl = ["curl", "-sf", "--max-time", "3", f"http://127.0.0.1:{port}{path}"]
        ran = subprocess.run(
            ["ip", "netns", "exec", self.namespace, *curl], stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        return ran.stdout if ran.returncode == 0 else None

    def healthy(self):
        return self.get("/healthz") == '{"ApplicationHealthState":"Healthy"}'

    def await_ready(self):
        until("the worker takes jobs", lambda: self.get("/readyz") is not None)

    def steps(self, journal):
        """Returns how many steps jobs have begun here, by the file that they write."""
        path = self.root / journal.lstrip("/")
        return len(path.read_text().splitlines()) if path.exists() else 0

    def log(self, message=None):
        """Returns the JSON lines of the worker's log with this message, of all boots."""
        journal = self.journal("--output=cat", "--identifier=reprieve-worker")
        lines = []
        for line in journal.splitlines():
            with contextlib.suppress(ValueError):
                lines.append(json.loads(line))
        return [line for line in lines if message in (None, line.get("message"))]

    def completed(self):
        """Returns the ids of the jobs that the worker completed, once for each time."""
        return [line["job"] for line in self.log("the job's run ended") if line["outcome"] == "completed"]


def ip(arguments):
    subprocess.run(["ip", *arguments.split()], check=True)


def stop(process):
    """Ends a program that this one has started."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if process.stdout:
        process.stdout.close()
