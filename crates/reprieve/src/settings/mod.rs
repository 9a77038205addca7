//! Parses and checks all settings in one place. A flag overrides the environment, which overrides
//! the file, which overrides the default. All faults are reported at once.

mod args;
mod file;
mod given;
mod values;

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use reprieve_azure::scheduled_events::{Client as Metadata, METADATA_URL};
use reprieve_azure::storage::ContainerName;
use reprieve_core::interruption::Policy;
use reprieve_core::ports::LEASE_MAX;
use reprieve_core::worker::Settings;
use reprieve_core::{Error, ErrorKind, Result};
use tracing_subscriber::EnvFilter;

pub use self::args::{StoreArgs, WorkerArgs};
use self::file::File;
#[cfg(test)]
pub(crate) use self::file::KEYS;
pub(crate) use self::given::{By, Given};
use self::values::OFF;
use crate::queues::Queues;
use crate::stores::Address;

/// The settings that select a store and its queues.
#[derive(Debug)]
pub(crate) struct StoreSettings {
    pub(crate) address: Address,
    pub(crate) queues: Queues,
    pub(crate) container: ContainerName,
}

/// All settings of a worker process.
#[derive(Debug)]
pub(crate) struct WorkerSettings {
    pub(crate) store: StoreSettings,
    /// `None`: off.
    pub(crate) metadata: Option<Metadata>,
    pub(crate) vm_name: Option<String>,
    pub(crate) worker: Settings,
    pub(crate) listen: Option<SocketAddr>,
}

/// The log's filter and format.
#[derive(Debug)]
pub(crate) struct LogSettings {
    pub(crate) filter: EnvFilter,
    /// `None`: by whether stderr is a terminal.
    pub(crate) format: Option<LogFormat>,
}

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

impl StoreSettings {
    pub(crate) fn read(args: &StoreArgs) -> Result<Self> {
        let mut reading = Reading::begin(args);
        let store = reading.store(args);
        reading.end(store)
    }
}

impl WorkerSettings {
    pub(crate) fn read(args: &WorkerArgs) -> Result<(Self, LogSettings)> {
        Self::read_with_origins(args).map(|(settings, log, _)| (settings, log))
    }

    /// Reads the settings like [`read`](Self::read), and also returns where each came from.
    pub(crate) fn read_with_origins(args: &WorkerArgs) -> Result<(Self, LogSettings, Vec<Origin>)> {
        let mut reading = Reading::begin(&args.store);
        let store = reading.store(&args.store);
        let worker = reading.worker(args);
        let metadata =
            reading.read("metadata-url", args.metadata_url.as_deref(), METADATA_URL, values::metadata);
        let vm_name = reading.read("vm-name", args.vm_name.as_deref(), "", values::vm_name);
        let listen = reading.read("listen", args.listen.as_deref(), OFF, values::listen);
        let format = reading.read("log-format", args.log_format.as_deref(), "", values::log_format);
        let filter = reading.read("log", args.log.as_deref(), "info", values::filter);
        let settings = (|| {
            let settings =
                Self { store: store?, metadata: metadata?, vm_name: vm_name?, worker, listen: listen? };
            Some((settings, LogSettings { filter: filter?, format: format? }))
        })();
        let origins = std::mem::take(&mut reading.origins);
        reading.end(settings).map(|(settings, log)| (settings, log, origins))
    }
}

/// A setting as it was given, and where it came from.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) key: &'static str,
    pub(crate) given: Given,
    /// The flag, variable or file; `None` for the default.
    pub(crate) place: Option<String>,
}

/// The settings file, and the faults found so far.
#[derive(Debug)]
struct Reading {
    file: File,
    faults: Vec<String>,
    origins: Vec<Origin>,
}

impl Reading {
    fn begin(args: &StoreArgs) -> Self {
        // A unit file or a shell unsets a variable by setting it to the empty string.
        let named = args.config.as_deref().filter(|config| config.by == By::Flag || !config.text.is_empty());
        let (file, faults) = File::read(named.map(|config| Path::new(&config.text)));
        Self { file, faults, origins: Vec::new() }
    }

    /// Reads one setting, or `default` when it was not given. Notes a fault with the place that the
    /// value came from.
    fn read<T>(
        &mut self,
        key: &'static str,
        given: Option<&Given>,
        default: &str,
        parse: impl FnOnce(&Given) -> Result<T, String>,
    ) -> Option<T> {
        let given = given.filter(|given| given.by == By::Flag || !given.text.is_empty());
        let default = Given { text: default.to_owned(), by: By::Default };
        let given = given.or_else(|| self.file.get(key)).unwrap_or(&default);
        let place = (given.by != By::Default).then(|| self.origin(key, given.by));
        self.origins.push(Origin { key, given: given.clone(), place });
        match parse(given) {
            Ok(value) => Some(value),
            Err(fault) => {
                let origin = self.origin(key, given.by);
                self.faults.push(format!("{origin}: {fault}"));
                None
            }
        }
    }

    fn origin(&self, key: &str, by: By) -> String {
        match by {
            By::Flag | By::Default => format!("--{key}"),
            By::Env => format!("REPRIEVE_{}", key.to_uppercase().replace('-', "_")),
            By::File => format!("{key} in {}", self.file.name()),
        }
    }

    fn store(&mut self, args: &StoreArgs) -> Option<StoreSettings> {
        let address = self.read("store", args.store.as_deref(), "sqlite:reprieve.db", Address::read);
        let queues = self.read("queue", args.queue.as_deref(), "default", |given| Queues::parse(&given.text));
        let container =
            self.read("container", args.container.as_deref(), ContainerName::DEFAULT, values::container);
        Some(StoreSettings { address: address?, queues: queues?, container: container? })
    }

    fn worker(&mut self, args: &WorkerArgs) -> Settings {
        let concurrency = self.read("concurrency", args.concurrency.as_deref(), "auto", values::concurrency);
        let budget = self.read("budget", args.budget.as_deref(), "10s", values::duration);
        let lease = self.read("lease", args.lease.as_deref(), "60s", values::duration);
        let kind = self.read("default-kind", args.default_kind.as_deref(), "", values::default_kind);
        let after = args.unknown_kind_after.as_deref();
        let after = self.read("unknown-kind-after", after, "24h", values::duration);
        let remember = self.read("remember-done", args.remember_done.as_deref(), "0s", values::duration);
        let every =
            self.read("checkpoint-every", args.checkpoint_every.as_deref(), "auto", values::checkpoint_every);
        let policy = self.policy(args);
        // A value that could not be read is replaced by one that causes no fault in another
        // setting.
        let settings = Settings {
            concurrency: concurrency.unwrap_or(1),
            budget: budget.unwrap_or(Duration::from_millis(100)),
            lease: lease.unwrap_or(LEASE_MAX),
            checkpoint_every: every.unwrap_or_default(),
            default_kind: kind.flatten(),
            unknown_kind_after: after.unwrap_or_default(),
            remember_done: remember.unwrap_or_default(),
            policy,
        };
        self.faults.extend(settings.check());
        settings
    }

    fn policy(&mut self, args: &WorkerArgs) -> Policy {
        let approve = self.read("approve", args.approve.as_deref(), "sole", values::approve);
        let user = self.read("approve-user", args.approve_user.as_deref(), "drained", values::approve_user);
        let under = args.approve_freeze_under.as_deref();
        let under = self.read("approve-freeze-under", under, "10s", values::duration);
        let wait = self.read("approve-wait", args.approve_wait.as_deref(), "5m", values::duration);
        let predicted = args.predicted_failure.as_deref();
        let predicted = self.read("predicted-failure", predicted, "warn", values::predicted_failure);
        Policy {
            approve: approve.unwrap_or_default(),
            approve_user: user.unwrap_or_default(),
            approve_freeze_under: under.unwrap_or_default(),
            approve_wait: wait.unwrap_or_default(),
            predicted_failure: predicted.unwrap_or_default(),
        }
    }

    /// Returns the settings if there is no fault at all.
    fn end<T>(self, settings: Option<T>) -> Result<T> {
        match settings {
            Some(settings) if self.faults.is_empty() => Ok(settings),
            _ => Err(Error::new(ErrorKind::Invalid, "read the settings", self.faults.join("; "))),
        }
    }
}

/// An error's message without its operation.
pub(crate) fn message(error: &Error) -> String {
    let whole = error.to_string();
    whole.strip_prefix(&format!("{}: ", error.operation())).map_or_else(|| whole.clone(), str::to_owned)
}

#[cfg(test)]
mod tests;
