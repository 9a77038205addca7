//! Every setting, once: its key, default, help and parser. From this table come the flags, the
//! environment variables, the keys of `reprieve.toml`, and `--help`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::LazyLock;

use reprieve_azure::scheduled_events::METADATA_URL;
use reprieve_azure::storage::ContainerName;

use super::given::{By, Given};
use super::{WorkerSettings, values};
use crate::queues::Queues;
use crate::stores::Address;

/// A setting. Its help is for a terminal, so it is not Markdown.
pub(super) struct Setting {
    /// The long flag without its hyphens, which is also the key in `reprieve.toml`.
    pub(super) key: &'static str,
    /// The value's placeholder in the help.
    pub(super) value: &'static str,
    pub(super) default: Default,
    /// The first line of the help, without a full stop.
    pub(super) help: &'static str,
    /// The rest of the help; empty if the first line is enough.
    pub(super) details: &'static str,
    /// Parses the text into the settings, or returns a sentence that says what to write instead.
    pub(super) parse: fn(&Given, &mut WorkerSettings) -> Result<(), String>,
}

/// The default of a setting.
pub(super) enum Default {
    /// This text, as if it had been given.
    Text(&'static str),
    /// Empty text. The help shows this description.
    Unset(&'static str),
}

/// The settings of a store: of a worker, and of a program that only uses the store.
pub(super) static STORE: [Setting; 3] = [
    Setting {
        key: "store",
        value: "ADDRESS",
        default: Default::Text("sqlite:reprieve.db"),
        help: "Where jobs and their progress are stored",
        details: "sqlite:PATH is one file, shared by all processes of this machine, and created if it does not \
                  exist. A commit survives a power loss. With sqlite:PATH?durability=process a commit survives \
                  only the death of the process, and is faster.\n\n\
                  azure:ACCOUNT is a storage account. Reprieve signs in with this machine's identity: \
                  workload identity where it is configured, else managed identity \
                  (azure:ACCOUNT?client_id=ID where the VM has several), else the Azure CLI's login. The \
                  identity needs the roles Storage Queue Data Contributor and Storage Blob Data Contributor. \
                  azurite is the emulator on this machine. A connection string or a SAS \
                  (azure:ACCOUNT?sv=…&sig=…) is a secret; it is read from REPRIEVE_STORE or the settings file \
                  only.",
        parse: |given, to| {
            Address::parse(&given.text, given.by == By::Flag).map(|address| to.store.address = address)
        },
    },
    Setting {
        key: "queue",
        value: "NAMES",
        default: Default::Text("default"),
        help: "The queue: 3 to 56 of a-z, 0-9 and single hyphens",
        details: "Several queues are used as one, for more throughput: names separated by commas, or a pattern in \
                  quotes such as 'work-{0..7}'. Jobs that can't be done go to the queue NAME-poison.",
        parse: |given, to| Queues::parse(&given.text).map(|queues| to.store.queues = queues),
    },
    Setting {
        key: "container",
        value: "NAME",
        default: Default::Text(ContainerName::DEFAULT),
        help: "The blob container of a store in Azure: 3 to 63 of a-z, 0-9 and single hyphens",
        details: "It contains inputs, outputs and progress. All users of a queue must use the same container.",
        parse: |given, to| values::container(given).map(|container| to.store.container = container),
    },
];

/// The settings file itself, which is not one of its keys.
pub(super) static CONFIG: Setting = Setting {
    key: "config",
    value: "PATH",
    default: Default::Unset("reprieve.toml, if it exists"),
    help: "The settings file",
    details: "Its keys are the long options. A flag overrides the environment, which overrides the file.",
    parse: |_, _| Ok(()),
};

/// The other settings of a worker.
pub(super) static WORKER: [Setting; 27] = [
    Setting {
        key: "default-kind",
        value: "KIND",
        default: Default::Unset("none"),
        help: "The kind of job for messages that are JSON and name no kind",
        details: "The message is then the job's arguments. Without a default, such a message goes to the poison \
                  queue.",
        parse: |given, to| values::default_kind(given).map(|kind| to.worker.default_kind = kind),
    },
    Setting {
        key: "unknown-kind-after",
        value: "DURATION",
        default: Default::Text("24h"),
        help: "How long a message that no worker can use yet is deferred before it goes to the poison queue",
        details: "This is for an unknown kind, state of a newer binary, and a body that can't be read: deploy a \
                  worker that can use it in the meantime. Arguments or state that do not fit a known kind are \
                  deferred for 10 minutes, or this time if it is shorter. `reprieve status` shows deferred \
                  messages. At most 720h.",
        parse: |given, to| values::duration(given).map(|after| to.worker.unknown_kind_after = after),
    },
    Setting {
        key: "expiring-messages",
        value: "WHAT",
        default: Default::Text("replace"),
        help: "What to do with other programs' messages that have a time to live: replace or keep",
        details: "The queue deletes such a message when its time ends, also while its job runs. replace sends the job \
                  again without a time to live before it begins, which takes seven more requests and a record that is kept \
                  for a week. keep runs it as it is, and logs how long it has left.",
        parse: |given, to| values::expiring(given).map(|what| to.worker.expiring = what),
    },
    Setting {
        key: "remember-done",
        value: "DURATION",
        default: Default::Text("0s"),
        help: "How long a finished job is remembered, so that a second message does not run it again",
        details: "A job with a result, with long arguments, or that was redriven is remembered without this. It \
                  costs a read before and a write after each job. At most 8760h.",
        parse: |given, to| values::duration(given).map(|time| to.worker.remember_done = time),
    },
    Setting {
        key: "metadata-url",
        value: "URL|off",
        default: Default::Text(METADATA_URL),
        help: "The instance metadata service, which announces evictions; off outside Azure",
        details: "The default is its address in every Azure VM. The worker takes no jobs before it has answered.",
        parse: |given, to| values::metadata(given).map(|metadata| to.metadata = metadata),
    },
    Setting {
        key: "metadata-version",
        value: "VERSION|auto",
        default: Default::Text("auto"),
        help: "The api-version of scheduled events, such as 2020-07-01",
        details: "auto reads the newest and the newest documented one side by side; either is enough. Give one only \
                  where another is harmful.",
        // The client exists already: settings are parsed in this order.
        parse: |given, to| {
            let version = values::metadata_version(given)?;
            if let Some(version) = version {
                to.metadata = to.metadata.take().map(|metadata| metadata.with_version(version));
            }
            Ok(())
        },
    },
    Setting {
        key: "vm-name",
        value: "NAME",
        default: Default::Unset("the metadata service's name for it"),
        help: "Azure's name of this VM",
        details: "It distinguishes the evictions of this VM from those of other VMs of its set.",
        parse: |given, to| values::vm_name(given).map(|name| to.vm_name = name),
    },
    Setting {
        key: "state-dir",
        value: "DIRECTORY",
        default: Default::Unset("nothing is shared"),
        help: "A directory of this VM that its workers share, such as /run/my-worker",
        details: "One of them polls the metadata service for all, which allows five requests a second to a VM. With a \
                  store in Azure, it also keeps the receipts of the messages that a worker holds: when a worker is \
                  killed, the next one here releases them at once, and not when their leases end. It is created if it \
                  does not exist; only the workers' user should be able to write to it.",
        parse: |given, to| values::state_dir(given).map(|directory| to.state_dir = directory),
    },
    Setting {
        key: "start-timeout",
        value: "DURATION",
        default: Default::Text("10m"),
        help: "How long the start waits for a store that refuses this identity or does not answer",
        details: "A role takes up to ten minutes to reach a storage account. The worker tries again with growing \
                  pauses, and exits with 1 after this time. 0s tries once, for at most 5 s.",
        parse: |given, to| values::duration(given).map(|within| to.start_timeout = within),
    },
    Setting {
        key: "escalate-to",
        value: "NAMES",
        default: Default::Unset("jobs stay in their queue"),
        help: "The queue for jobs that interruptions keep from making progress",
        details: "Such as one that a few VMs with regular priority serve. A job continues there from its last checkpoint, \
                  with all its attempts, and stays there. The workers of that queue need the same store and \
                  container.",
        parse: |given, to| values::escalate_to(given).map(|queues| to.escalate_to = queues),
    },
    Setting {
        key: "escalate-after",
        value: "NUMBER",
        default: Default::Text("3"),
        help: "After how many interruptions without progress a job goes to --escalate-to",
        details: "A delivery counts if it ended by an interruption or the death of its worker before the job's state \
                  had changed and been saved.",
        parse: |given, to| values::count(given).map(|after| to.escalate_after = after),
    },
    Setting {
        key: "concurrency",
        value: "NUMBER|auto",
        default: Default::Text("auto"),
        help: "How many jobs run at once, 1 to 4096",
        details: "auto is the number of cores, which is right for jobs that compute.",
        parse: |given, to| values::concurrency(given).map(|jobs| to.worker.concurrency = jobs),
    },
    Setting {
        key: "on-pressure",
        value: "WHAT",
        default: Default::Text("save"),
        help: "What to do when memory is low, a disk is nearly full or has I/O errors: save or show",
        details: "save asks the running jobs to save, once, and takes no new work while one of them runs; without a \
                  running job the worker takes one at a time. It begins below 5 % or 512MiB of available memory, of \
                  the machine or of a cgroup with a limit, and below 5 % or 1GiB of free space on the disk of \
                  --state-dir or of an embedded store, whichever is less; and it ends, after at least 30s, at twice as \
                  much. show goes on. Both say it in `reprieve status`, the log and reprieve_pressure. On Linux.",
        parse: |given, to| values::on_pressure(given).map(|what| to.worker.on_pressure = what),
    },
    Setting {
        key: "memory-reserve",
        value: "SIZE|PERCENT|off",
        default: Default::Text(values::OFF),
        help: "The memory that no further job may take, such as 1GiB or 10%, so that the kernel kills none",
        details: "What a job takes is its kind's `memory` in [kinds.KIND] of reprieve.toml, or what was measured: the \
                  first job of a kind then runs a minute before a second one begins beside it. A job that would not \
                  leave the reserve goes back to the queue, and jobs of other kinds go on. One job may always run. On \
                  Linux.",
        parse: |given, to| values::memory_reserve(given).map(|reserve| to.worker.memory_reserve = reserve),
    },
    Setting {
        key: "budget",
        value: "DURATION",
        default: Default::Text("10s"),
        help: "The longest time that a drain may take, at least 100ms",
        details: "A drain releases all jobs when the VM is about to be evicted, or the process gets a signal to \
                  stop. 10 seconds, because a notice of 30 is often much shorter.",
        parse: |given, to| values::duration(given).map(|budget| to.worker.budget = budget),
    },
    Setting {
        key: "lease",
        value: "DURATION",
        default: Default::Text("60s"),
        help: "How long a job stays leased after its last renewal, 1s to 168h",
        details: "A job waits this long when its machine dies without a notice. A shorter lease costs more \
                  renewals: one in each third of it. At least 1.5 times the budget, so that it outlasts a drain.",
        parse: |given, to| values::duration(given).map(|lease| to.worker.lease = lease),
    },
    Setting {
        key: "checkpoint-every",
        value: "DURATION|auto",
        default: Default::Text("auto"),
        help: "How often a job's progress is saved, 0s to 24h",
        details: "auto loses the least time to saves and to repeated work: it is √(2 × cost × time between losses), at \
                  least 5s and at most 10m. The cost is the mean time of recent saves of the same kind of job; before \
                  the first it assumes 20ms. How often a VM loses work is counted in the ledger of the last 30 days, \
                  with two losses in 20 VM-hours assumed besides: so a new fleet saves every 38s, or with saves of 1s \
                  every 4m28s. reprieve status shows what follows. 0s saves after every step.",
        parse: |given, to| values::checkpoint_every(given).map(|every| to.worker.checkpoint_every = every),
    },
    Setting {
        key: "approve",
        value: "WHO",
        default: Default::Text("sole"),
        help: "Who approves events, so that they begin early: never, sole, leader or any",
        details: "An approval applies to every VM that the event names. sole approves an event that names this VM \
                  alone, once every worker on it has marked itself ready in the store. leader does the same, and \
                  the first VM of an event that names several approves it, once every worker on all of them is \
                  ready. any approves every event that names this VM, whether the others are ready or not. An \
                  eviction (Preempt) is never approved.",
        parse: |given, to| values::approve(given).map(|approve| to.worker.policy.approve = approve),
    },
    Setting {
        key: "approve-user",
        value: "WHEN",
        default: Default::Text("drained"),
        help: "When to approve an event initiated by a user: drained or at-once",
        details: "drained approves when all jobs are released, which begins at once. at-once does not wait for \
                  that.",
        parse: |given, to| values::approve_user(given).map(|when| to.worker.policy.approve_user = when),
    },
    Setting {
        key: "approve-freeze-under",
        value: "DURATION",
        default: Default::Text("10s"),
        help: "Freezes known to be shorter than this are approved at once, 0s to 5m",
        details: "Jobs continue under leases that outlast the freeze. A freeze that is longer or of unknown length \
                  is left to begin by itself. With 0s no freeze is short.",
        parse: |given, to| values::duration(given).map(|under| to.worker.policy.approve_freeze_under = under),
    },
    Setting {
        key: "during-freeze",
        value: "WHAT",
        default: Default::Text("work"),
        help: "What jobs do during a freeze that is not short: work or pause",
        details: "A freeze keeps the memory, and leases are extended to outlast it. The event stays active for about \
                  ten minutes after it, for which pause idles the jobs, saved.",
        parse: |given, to| values::during_freeze(given).map(|what| to.worker.policy.during_freeze = what),
    },
    Setting {
        key: "approve-wait",
        value: "DURATION",
        default: Default::Text("5m"),
        help: "How long an approval waits until all other workers are ready, 0s to 1h",
        details: "After that the event is left to begin by itself.",
        parse: |given, to| values::duration(given).map(|wait| to.worker.policy.approve_wait = wait),
    },
    Setting {
        key: "approve-for",
        value: "VM,…",
        default: Default::Unset("this VM only"),
        help: "Other VMs for which to approve when no worker on them answers",
        details: "A secondary names its primary, as Azure advises. A Reboot, Redeploy or Freeze that names no other \
                  VM is approved after --approve-wait if by then no worker there has reported for a minute. The workers \
                  must share a store.",
        parse: |given, to| values::approve_for(given).map(|vms| to.approve_for = vms),
    },
    Setting {
        key: "predicted-failure",
        value: "ACTION",
        default: Default::Text("warn"),
        help: "What to do when this VM will be moved because its host will fail within days: warn or drain",
        details: "warn continues to work and logs that redeploying early is safer. drain releases all jobs and \
                  approves the move now.",
        parse: |given, to| {
            values::predicted_failure(given).map(|action| to.worker.policy.predicted_failure = action)
        },
    },
    Setting {
        key: "listen",
        value: "IP:PORT|off",
        default: Default::Text(values::OFF),
        help: "The address of /healthz, /livez, /readyz and /metrics, such as 127.0.0.1:9090",
        details: "They have no access control, so they are off by default.",
        parse: |given, to| values::listen(given).map(|listen| to.listen = listen),
    },
    Setting {
        key: "log-format",
        value: "FORMAT",
        default: Default::Unset("text on a terminal, else json"),
        help: "The format of the log on stderr: text or json",
        details: "",
        parse: |given, to| values::log_format(given).map(|format| to.log.format = format),
    },
    Setting {
        key: "log",
        value: "FILTER",
        default: Default::Text("info"),
        help: "What is logged: error, warn, info, debug or trace",
        details: "Also for each part of the program, as in info,reprieve_core=debug.",
        parse: |given, to| values::filter(given).map(|filter| to.log.filter = filter),
    },
];

/// For how long a store keeps what is of use to people only: for workers and for `reprieve clean`.
pub(super) static KEEP: [Setting; 4] = [
    Setting {
        key: "keep-results",
        value: "DURATION|forever",
        default: Default::Text("30d"),
        help: "How long results are kept, at least 8d",
        details: "An idle worker removes results/ blobs that were written longer ago. Outputs that jobs write under \
                  other names, and inputs, are never removed.",
        parse: |given, to| values::keep(given).map(|keep| to.worker.keep.results = keep),
    },
    Setting {
        key: "keep-drains",
        value: "DURATION|forever",
        default: Default::Text("30d"),
        help: "How long reports of drains are kept, at least 8d",
        details: "They are the blobs drains/, which `reprieve status` shows. The same for diagnoses/, of VMs that were to be replaced.",
        parse: |given, to| values::keep(given).map(|keep| to.worker.keep.drains = keep),
    },
    Setting {
        key: "keep-ledger",
        value: "DURATION|forever",
        default: Default::Text("90d"),
        help: "How long the ledger of boots, interruptions and failures is kept, at least 8d",
        details: "`reprieve report` reads it.",
        parse: |given, to| values::keep(given).map(|keep| to.worker.keep.ledger = keep),
    },
    Setting {
        key: "keep-unfinished",
        value: "DURATION|forever",
        default: Default::Text(values::FOREVER),
        help: "How long a job that did not finish keeps its progress and long arguments, at least 8d",
        details: "This is for jobs whose message was deleted by hand, or that are never redriven. A store can't \
                  tell them from jobs that wait: choose a time that no job spends waiting in its queue, and none \
                  in the poison queue. It counts from the last save, or from \
                  when long arguments were written.",
        parse: |given, to| values::keep(given).map(|keep| to.worker.keep.unfinished = keep),
    },
];

/// Every key of `reprieve.toml`.
pub(crate) fn keys() -> impl Iterator<Item = &'static str> {
    settings().map(|setting| setting.key)
}

/// The setting with this key in `reprieve.toml`.
pub(super) fn find(key: &str) -> Option<&'static Setting> {
    settings().find(|setting| setting.key == key)
}

fn settings() -> impl Iterator<Item = &'static Setting> {
    STORE.iter().chain(&WORKER).chain(&KEEP)
}

/// Names of variables that other programs of the project read, that they set for the programs that they start,
/// or that are outputs of its templates, which azd puts into the environment.
const OTHERS: [&str; 22] = [
    "REPRIEVE_ALLOWED_IPS",
    "REPRIEVE_APPLICATION",
    "REPRIEVE_APPLICATION_VERSION",
    "REPRIEVE_AZ_TIMEOUT",
    "REPRIEVE_BIN",
    "REPRIEVE_BUDGET_START",
    "REPRIEVE_CACHE_DIR",
    "REPRIEVE_CLI",
    "REPRIEVE_COMPUTE_FLEETS",
    "REPRIEVE_CONTACT_EMAILS",
    "REPRIEVE_CURRENT_CAPACITIES",
    "REPRIEVE_INSTANCES",
    "REPRIEVE_MANAGEMENT_URL",
    "REPRIEVE_NAME",
    "REPRIEVE_NSPAWN_ISOLATED",
    "REPRIEVE_PRESET",
    "REPRIEVE_PRICES_URL",
    "REPRIEVE_QUEUES",
    "REPRIEVE_REAL_AZ",
    "REPRIEVE_SCALE_SETS",
    "REPRIEVE_SSH_PUBLIC_KEY",
    "REPRIEVE_WORKER_CLIENT_ID",
];

/// The beginnings of such names: of what hooks get, and of what tests need.
const OTHERS_BEGIN: [&str; 3] = ["REPRIEVE_EVENT", "REPRIEVE_PACKAGE", "REPRIEVE_TEST"];

/// Returns a sentence for each variable that looks like a setting and is none: a misspelt one would
/// have no effect.
pub(super) fn unknown_variables(names: impl Iterator<Item = String>) -> Vec<String> {
    let all: Vec<_> = names.filter(|name| name.starts_with("REPRIEVE_")).collect();
    let is_known = |name: &str| {
        keys().chain([CONFIG.key]).any(|key| variable(key) == name)
            || OTHERS.contains(&name)
            || OTHERS_BEGIN.iter().any(|begin| name.starts_with(begin))
            || is_of_kubernetes(name, &all)
    };
    let unknown = all.iter().filter(|name| !is_known(name));
    let sentence = |name: &String| {
        let nearest = nearest(name, keys().chain([CONFIG.key]).map(variable));
        format!("{name}: there is no such setting; did you mean {nearest}?")
    };
    unknown.map(sentence).collect()
}

/// Returns a sentence for each variable of a setting whose value is no text, also for settings that this program does
/// not have: the next one that is started has them.
pub(super) fn unreadable_variables(variables: &[(String, OsString)]) -> Vec<String> {
    let is_setting = |name: &str| keys().chain([CONFIG.key]).any(|key| variable(key) == name);
    let unreadable = variables.iter().filter(|(name, value)| is_setting(name) && value.to_str().is_none());
    unreadable.map(|(name, _)| format!("{name}: its value is not UTF-8; write plain text")).collect()
}

/// Whether Kubernetes has set the variable among `all`, because a service of the namespace has a name that begins with
/// `reprieve`. Each has its host beside its ports.
/// <https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables>
fn is_of_kubernetes(name: &str, all: &[String]) -> bool {
    let services = all.iter().filter_map(|it| it.strip_suffix("_SERVICE_HOST"));
    services.filter_map(|service| name.strip_prefix(service)).any(|rest| {
        matches!(rest, "_SERVICE_HOST" | "_SERVICE_PORT" | "_PORT")
            || rest.starts_with("_SERVICE_PORT_")
            || rest.starts_with("_PORT_")
    })
}

/// Returns the candidate that is most like `name`.
pub(super) fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> &'a str {
    let likeness = |candidate: &&str| strsim::jaro_winkler(name, candidate);
    candidates.max_by(|a, b| likeness(a).total_cmp(&likeness(b))).unwrap_or_default()
}

/// The environment variable of the setting with this key.
pub(super) fn variable(key: &str) -> &'static str {
    static VARIABLES: LazyLock<BTreeMap<&str, String>> = LazyLock::new(|| {
        let name = |key: &str| format!("REPRIEVE_{}", key.to_uppercase().replace('-', "_"));
        keys().chain([CONFIG.key]).map(|key| (key, name(key))).collect()
    });
    VARIABLES.get(key).map_or("", String::as_str)
}

impl Setting {
    /// The default as text.
    pub(super) const fn default_text(&self) -> &'static str {
        match self.default {
            Default::Text(text) => text,
            Default::Unset(_) => "",
        }
    }

    /// The first line of the help, with the default.
    pub(super) fn short_help(&self) -> String {
        let (Default::Text(default) | Default::Unset(default)) = self.default;
        format!("{} [default: {default}]", self.help)
    }

    /// The whole help.
    pub(super) fn long_help(&self) -> String {
        let short = self.short_help();
        if self.details.is_empty() { short } else { format!("{short}\n\n{}", self.details) }
    }

    /// Whether the value may be a number without quotes in `reprieve.toml`.
    pub(super) fn takes_number(&self) -> bool {
        self.value.starts_with("NUMBER")
    }
}
