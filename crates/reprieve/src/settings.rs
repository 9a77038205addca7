//! Raw settings in, checked ones out, in this one place: flag before environment before file before default, and every
//! fault at once.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use reprieve_azure::scheduled_events::{Client as Metadata, METADATA_URL};
use reprieve_azure::storage::ContainerName;
use reprieve_core::checkpoint::CheckpointEvery;
use reprieve_core::worker::{LEASE_MAX, Settings};
use reprieve_core::{Error, ErrorKind, Result};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use crate::args::{StoreArgs, WorkerArgs};
use crate::duration::parse_duration;
use crate::file::File;
use crate::given::{By, Given};
use crate::queues::Queues;
use crate::store::Address;

/// The switch-off word of settings that can be switched off.
const OFF: &str = "off";

/// The parts of Azure's SDK. At `info` they log every request with its URL; what matters of it is said in our own words, so
/// they speak only when a filter names them.
const SDK: [&str; 5] =
    ["azure_core", "azure_identity", "azure_storage_blob", "azure_storage_queue", "typespec_client_core"];

/// Which store and queue.
#[derive(Debug)]
pub(crate) struct StoreSettings {
    pub(crate) address: Address,
    pub(crate) queues: Queues,
    pub(crate) container: ContainerName,
}

/// Everything a worker process is told.
#[derive(Debug)]
pub(crate) struct WorkerSettings {
    pub(crate) store: StoreSettings,
    /// `None`: off.
    pub(crate) metadata: Option<Metadata>,
    pub(crate) vm_name: Option<String>,
    pub(crate) worker: Settings,
    pub(crate) listen: Option<SocketAddr>,
}

/// What is logged, and how.
#[derive(Debug)]
pub(crate) struct LogSettings {
    pub(crate) filter: EnvFilter,
    /// `None`: by whether stderr is a terminal.
    pub(crate) format: Option<LogFormat>,
}

/// How the log looks.
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

    /// As [`read`](Self::read), with where each setting came from.
    pub(crate) fn read_with_origins(args: &WorkerArgs) -> Result<(Self, LogSettings, Vec<Origin>)> {
        let mut reading = Reading::begin(&args.store);
        let store = reading.store(&args.store);
        let worker = reading.worker(args);
        let metadata = reading.read("metadata-url", args.metadata_url.as_deref(), METADATA_URL, metadata);
        let vm_name = reading.read("vm-name", args.vm_name.as_deref(), "", vm_name);
        let listen = reading.read("listen", args.listen.as_deref(), OFF, listen);
        let format = reading.read("log-format", args.log_format.as_deref(), "", log_format);
        let filter = reading.read("log", args.log.as_deref(), "info", filter);
        let settings = (|| {
            let settings =
                Self { store: store?, metadata: metadata?, vm_name: vm_name?, worker, listen: listen? };
            Some((settings, LogSettings { filter: filter?, format: format? }))
        })();
        let origins = std::mem::take(&mut reading.origins);
        reading.end(settings).map(|(settings, log)| (settings, log, origins))
    }
}

/// A setting as it was given.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) key: &'static str,
    pub(crate) given: Given,
    /// Which flag, variable or file; `None` when nobody gave it.
    pub(crate) place: Option<String>,
}

/// The file, and the faults found so far.
#[derive(Debug)]
struct Reading {
    file: File,
    faults: Vec<String>,
    origins: Vec<Origin>,
}

impl Reading {
    fn begin(args: &StoreArgs) -> Self {
        // A variable that is set to nothing is how a unit file or a shell unsets it.
        let named = args.config.as_deref().filter(|config| config.by == By::Flag || !config.text.is_empty());
        let (file, faults) = File::read(named.map(|config| Path::new(&config.text)));
        Self { file, faults, origins: Vec::new() }
    }

    /// Reads one setting, `default` when nobody gave it; notes a fault with where the value came from.
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
        let container = self.read("container", args.container.as_deref(), ContainerName::DEFAULT, container);
        Some(StoreSettings { address: address?, queues: queues?, container: container? })
    }

    fn worker(&mut self, args: &WorkerArgs) -> Settings {
        let concurrency = self.read("concurrency", args.concurrency.as_deref(), "auto", concurrency);
        let budget = self.read("budget", args.budget.as_deref(), "10s", duration);
        let lease = self.read("lease", args.lease.as_deref(), "60s", duration);
        let kind = self.read("default-kind", args.default_kind.as_deref(), "", default_kind);
        let every = self.read("checkpoint-every", args.checkpoint_every.as_deref(), "auto", checkpoint_every);
        // What could not be read is replaced by something that is in no other setting's way.
        let settings = Settings {
            concurrency: concurrency.unwrap_or(1),
            budget: budget.unwrap_or(Duration::from_millis(100)),
            lease: lease.unwrap_or(LEASE_MAX),
            checkpoint_every: every.unwrap_or_default(),
            default_kind: kind.flatten(),
        };
        self.faults.extend(settings.check());
        settings
    }

    /// The settings, if nothing at all is wrong.
    fn end<T>(self, settings: Option<T>) -> Result<T> {
        match settings {
            Some(settings) if self.faults.is_empty() => Ok(settings),
            _ => Err(Error::new(ErrorKind::Invalid, "read the settings", self.faults.join("; "))),
        }
    }
}

/// What an error says, without what was being done.
pub(crate) fn message(error: &Error) -> String {
    let whole = error.to_string();
    whole.strip_prefix(&format!("{}: ", error.operation())).map_or_else(|| whole.clone(), str::to_owned)
}

fn container(given: &Given) -> Result<ContainerName, String> {
    ContainerName::parse(&given.text).map_err(|error| message(&error))
}

fn metadata(given: &Given) -> Result<Option<Metadata>, String> {
    if given.text == OFF {
        return Ok(None);
    }
    Metadata::new(&given.text).map(Some).map_err(|error| message(&error) + ", or off")
}

/// No kind is that no message is understood without one.
fn default_kind(given: &Given) -> Result<Option<String>, String> {
    let kind = given.text.trim();
    if kind.is_empty() && given.by == By::Flag {
        return Err("it is empty; leave it out to have no kind by default".to_owned());
    }
    Ok((!kind.is_empty()).then(|| kind.to_owned()))
}

/// No name is for the metadata service to give.
fn vm_name(given: &Given) -> Result<Option<String>, String> {
    let name = given.text.trim();
    if name.is_empty() && given.by == By::Flag {
        return Err("it is empty; leave it out to have the metadata service say it".to_owned());
    }
    Ok((!name.is_empty()).then(|| name.to_owned()))
}

fn concurrency(given: &Given) -> Result<usize, String> {
    if given.text == "auto" {
        return Ok(Settings::default().concurrency);
    }
    given.text.parse().map_err(|_| format!("{:?} is neither a number nor auto", given.text))
}

fn duration(given: &Given) -> Result<Duration, String> {
    parse_duration(&given.text).map_err(|error| message(&error))
}

fn checkpoint_every(given: &Given) -> Result<CheckpointEvery, String> {
    if given.text == "auto" {
        return Ok(CheckpointEvery::Auto);
    }
    duration(given).map(CheckpointEvery::Every).map_err(|fault| fault + ", or auto")
}

fn listen(given: &Given) -> Result<Option<SocketAddr>, String> {
    if given.text == OFF {
        return Ok(None);
    }
    let fault = |_| format!("{:?} is not an IP address with a port, such as 127.0.0.1:9090", given.text);
    given.text.parse().map(Some).map_err(fault)
}

fn log_format(given: &Given) -> Result<Option<LogFormat>, String> {
    match given.text.as_str() {
        "" if given.by == By::Default => Ok(None),
        "text" => Ok(Some(LogFormat::Text)),
        "json" => Ok(Some(LogFormat::Json)),
        other => Err(format!("{other:?} is neither text nor json")),
    }
}

fn filter(given: &Given) -> Result<EnvFilter, String> {
    // A lone word means a part of the program, so a mistyped level would silence everything.
    let words = given.text.split(',').map(str::trim);
    let unlevelled = |word: &&str| !word.is_empty() && word.parse::<LevelFilter>().is_err();
    if !given.text.contains('[')
        && let Some(word) = words.filter(|word| !word.contains('=')).find(unlevelled)
    {
        return Err(format!(
            "{word:?} is none of off, error, warn, info, debug and trace; for a part of the program write {word}=debug"
        ));
    }
    let filter = EnvFilter::builder().parse(&given.text).map_err(|error| {
        format!("{:?} is not a log filter, such as info or info,reprieve_core=debug: {error}", given.text)
    })?;
    let unnamed = SDK.into_iter().filter(|part| !given.text.contains(part));
    // What is put together of fixed names is always a directive.
    let off = unnamed.filter_map(|part| format!("{part}=off").parse().ok());
    Ok(off.fold(filter, EnvFilter::add_directive))
}

#[cfg(test)]
mod tests;
