//! All settings: reads and checks them in one place. A flag overrides the environment, which
//! overrides the file, which overrides the default. All faults are reported at once.

mod args;
mod dependencies;
mod file;
mod given;
mod kinds;
mod table;
mod values;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use reprieve_azure::scheduled_events::Client as Metadata;
use reprieve_core::ports::LEASE_MAX;
use reprieve_core::retention::Keep;
use reprieve_core::worker::{Escalation, Settings};
use reprieve_core::{Error, ErrorKind, Result};
use tracing_subscriber::EnvFilter;

use self::args::Texts;
pub use self::args::{CleanArgs, StoreArgs, WorkerArgs};
pub(crate) use self::dependencies::Dependencies;
use self::file::File;
use self::given::By;
pub(crate) use self::given::Given;
pub(crate) use self::kinds::Kinds;
use self::table::{CONFIG, KEEP, STORE, Setting, WORKER, variable};
use crate::queues::Queues;
use crate::stores::StoreSettings;

/// All settings of a worker process.
#[derive(Debug)]
pub(crate) struct WorkerSettings {
    pub(crate) store: StoreSettings,
    /// `None`: off.
    pub(crate) metadata: Option<Metadata>,
    pub(crate) vm_name: Option<String>,
    /// The VMs for which this worker approves when no worker there answers.
    pub(crate) approve_for: Vec<String>,
    /// The directory that the workers of this VM share; `None`: they share nothing.
    pub(crate) state_dir: Option<PathBuf>,
    /// The queues of jobs that interruptions keep from moving on; `None`: they stay.
    pub(crate) escalate_to: Option<Queues>,
    /// After how many interruptions a job is moved there.
    pub(crate) escalate_after: u32,
    /// How long the start waits for a store that refuses or does not answer.
    pub(crate) start_timeout: Duration,
    pub(crate) worker: Settings,
    /// What jobs depend on besides the store, from the settings file.
    pub(crate) dependencies: Dependencies,
    /// The limits of kinds of job that the settings file sets.
    pub(crate) kinds: Kinds,
    pub(crate) listen: Option<SocketAddr>,
    pub(crate) log: LogSettings,
}

/// The log's filter and format.
#[derive(Debug, Default)]
pub(crate) struct LogSettings {
    pub(crate) filter: EnvFilter,
    /// `None`: text if stderr is a terminal, else JSON.
    pub(crate) format: Option<LogFormat>,
}

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

/// Reads the settings of a store only.
///
/// # Errors
/// [`Invalid`](ErrorKind::Invalid) lists everything that is wrong with them.
pub(crate) fn read_store(args: &StoreArgs) -> Result<StoreSettings> {
    let mut reading = Reading::begin(args.texts());
    reading.read(&STORE);
    Ok(reading.end()?.0.store)
}

/// Reads the settings of a store, and for how long it keeps what.
///
/// # Errors
/// [`Invalid`](ErrorKind::Invalid) lists everything that is wrong with them.
pub(crate) fn read_cleaning(args: &CleanArgs) -> Result<(StoreSettings, Keep)> {
    let mut reading = Reading::begin(args.texts());
    reading.read(&STORE);
    reading.read(&KEEP);
    let faults = reading.settings.worker.keep.check();
    reading.faults.extend(faults);
    let settings = reading.end()?.0;
    Ok((settings.store, settings.worker.keep))
}

impl WorkerSettings {
    /// Reads all settings.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) lists everything that is wrong with them.
    pub(crate) fn read(args: &WorkerArgs) -> Result<Self> {
        Self::read_with_origins(args).map(|(settings, _)| settings)
    }

    /// Reads the settings like [`read`](Self::read), and also returns where each came from.
    pub(crate) fn read_with_origins(args: &WorkerArgs) -> Result<(Self, Vec<Origin>)> {
        let mut reading = Reading::begin(args.texts());
        reading.read(&STORE);
        reading.read(&WORKER);
        reading.read(&KEEP);
        reading.settings.kinds = std::mem::take(&mut reading.file.kinds);
        let faults;
        (reading.settings.dependencies, faults) = reading.file.dependencies();
        reading.faults.extend(faults);
        let faults = reading.settings.worker.check();
        reading.faults.extend(faults);
        let own = &reading.settings.store.queues;
        let there = reading.settings.escalate_to.as_ref();
        if let Some(name) = there.and_then(|there| own.shared_with(there)) {
            reading.faults.push(format!(
                "--escalate-to: {name} is this worker's own queue or its poison queue; name one that other \
                 machines serve"
            ));
        }
        reading.end()
    }

    /// The settings before any is read. They cause no fault of another one, so that a value that
    /// can't be parsed is reported alone.
    fn unread() -> Self {
        let budget = Duration::from_millis(100);
        let worker = Settings { budget, lease: LEASE_MAX, ..Settings::default() };
        Self {
            store: StoreSettings::unread(),
            metadata: None,
            vm_name: None,
            approve_for: Vec::new(),
            escalate_to: None,
            escalate_after: Escalation::AFTER,
            state_dir: None,
            start_timeout: Duration::ZERO,
            worker,
            dependencies: Dependencies::default(),
            kinds: Kinds::default(),
            listen: None,
            log: LogSettings::default(),
        }
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

/// The settings and the faults found so far.
#[derive(Debug)]
struct Reading<'a> {
    texts: &'a Texts,
    file: File,
    settings: WorkerSettings,
    faults: Vec<String>,
    origins: Vec<Origin>,
}

impl<'a> Reading<'a> {
    fn begin(texts: &'a Texts) -> Self {
        let named = texts.get(CONFIG.key).filter(|config| config.is_set());
        let (file, mut faults) = File::read(named.map(|config| Path::new(&config.text)));
        // An empty one is unset.
        let variables = std::env::vars_os().filter(|(_, value)| !value.is_empty());
        let variables: Vec<_> =
            variables.filter_map(|(name, value)| Some((name.into_string().ok()?, value))).collect();
        faults.extend(table::unreadable_variables(&variables));
        faults.extend(table::unknown_variables(variables.into_iter().map(|(name, _)| name)));
        Self { texts, file, settings: WorkerSettings::unread(), faults, origins: Vec::new() }
    }

    /// Parses these settings. Notes each fault with the place that its value came from.
    fn read(&mut self, settings: &'static [Setting]) {
        for setting in settings {
            let key = setting.key;
            let given = self.texts.get(key).filter(|given| given.is_set()).or_else(|| self.file.get(key));
            let given = given
                .cloned()
                .unwrap_or_else(|| Given { text: setting.default_text().to_owned(), by: By::Default });
            let place = self.place(key, given.by);
            if let Err(fault) = (setting.parse)(&given, &mut self.settings) {
                self.faults.push(format!("{place}: {fault}"));
            }
            let place = (given.by != By::Default).then_some(place);
            self.origins.push(Origin { key, given, place });
        }
    }

    fn place(&self, key: &str, by: By) -> String {
        match by {
            By::Flag | By::Default => format!("--{key}"),
            By::Env => variable(key).to_owned(),
            By::File => format!("{key} in {}", self.file.name()),
        }
    }

    /// Returns the settings if there is no fault at all.
    fn end(self) -> Result<(WorkerSettings, Vec<Origin>)> {
        if self.faults.is_empty() {
            Ok((self.settings, self.origins))
        } else {
            Err(Error::new(ErrorKind::Invalid, "read the settings", self.faults.join("; ")))
        }
    }
}

#[cfg(test)]
pub(crate) use self::table::keys;

#[cfg(test)]
mod tests;
