//! Parses the text of each setting, or returns a sentence that says what to write instead.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use reprieve_azure::scheduled_events::{ApiVersion, Client as Metadata};
use reprieve_azure::storage::ContainerName;
use reprieve_core::Error;
use reprieve_core::checkpoint::CheckpointEvery;
use reprieve_core::interruption::{Approve, ApproveUser, DuringFreeze, PredictedFailure};
use reprieve_core::pressure::{MemoryReserve, OnPressure};
use reprieve_core::worker::{Expiring, Settings};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use super::LogFormat;
use super::given::{By, Given};
use crate::duration::parse_duration;
use crate::queues::Queues;
use crate::size::parse_size;

/// The value that switches a setting off.
pub(super) const OFF: &str = "off";

/// The crates of Azure's SDK. At `info` they log every request with its URL. Reprieve logs what
/// matters about a request itself, so they are off unless a filter names them.
const SDK: [&str; 5] =
    ["azure_core", "azure_identity", "azure_storage_blob", "azure_storage_queue", "typespec_client_core"];

/// The value that sets no limit.
pub(super) const FOREVER: &str = "forever";

pub(super) fn container(given: &Given) -> Result<ContainerName, String> {
    ContainerName::parse(&given.text).map_err(|error| error.message().to_owned())
}

pub(super) fn metadata(given: &Given) -> Result<Option<Metadata>, String> {
    if given.text == OFF {
        return Ok(None);
    }
    Metadata::new(&given.text).map(Some).map_err(|error| format!("{}, or off", error.message()))
}

/// `None`: the watcher chooses.
pub(super) fn metadata_version(given: &Given) -> Result<Option<ApiVersion>, String> {
    if given.text == "auto" {
        return Ok(None);
    }
    given.text.parse().map(Some).map_err(|error: Error| format!("{}, or auto", error.message()))
}

/// `None`: messages without a kind are dead-lettered.
pub(super) fn default_kind(given: &Given) -> Result<Option<String>, String> {
    let kind = given.text.trim();
    if kind.is_empty() && given.by == By::Flag {
        return Err("it is empty; omit it to have no default kind".to_owned());
    }
    Ok((!kind.is_empty()).then(|| kind.to_owned()))
}

/// `None`: the metadata service gives the name.
pub(super) fn vm_name(given: &Given) -> Result<Option<String>, String> {
    let name = given.text.trim();
    if name.is_empty() && given.by == By::Flag {
        return Err("it is empty; omit it to use the metadata service's name".to_owned());
    }
    Ok((!name.is_empty()).then(|| name.to_owned()))
}

/// None: this worker approves for its own VM only.
pub(super) fn approve_for(given: &Given) -> Result<Vec<String>, String> {
    let names = given.text.split(',').map(str::trim);
    let names: Vec<_> = names.filter(|name| !name.is_empty()).map(str::to_owned).collect();
    if names.is_empty() && given.by == By::Flag {
        return Err("it is empty; give names of VMs, separated by commas, or omit it".to_owned());
    }
    Ok(names)
}

/// `None`: the workers of this VM share nothing.
pub(super) fn state_dir(given: &Given) -> Result<Option<PathBuf>, String> {
    let directory = given.text.trim();
    if directory.is_empty() && given.by == By::Flag {
        return Err("it is empty; omit it to have none".to_owned());
    }
    Ok((!directory.is_empty()).then(|| PathBuf::from(directory)))
}

pub(super) fn concurrency(given: &Given) -> Result<usize, String> {
    if given.text == "auto" {
        return Ok(Settings::default().concurrency);
    }
    given.text.parse().map_err(|_| format!("{:?} is neither a number nor auto", given.text))
}

pub(super) fn duration(given: &Given) -> Result<Duration, String> {
    parse_duration(&given.text).map_err(|error| error.message().to_owned())
}

/// `None`: forever.
pub(super) fn keep(given: &Given) -> Result<Option<Duration>, String> {
    if given.text == FOREVER {
        return Ok(None);
    }
    duration(given).map(Some).map_err(|fault| fault + ", or forever")
}

pub(super) fn checkpoint_every(given: &Given) -> Result<CheckpointEvery, String> {
    if given.text == "auto" {
        return Ok(CheckpointEvery::Auto);
    }
    duration(given).map(CheckpointEvery::Every).map_err(|fault| fault + ", or auto")
}

pub(super) fn escalate_to(given: &Given) -> Result<Option<Queues>, String> {
    if given.is_set() { Queues::parse(&given.text).map(Some) } else { Ok(None) }
}

pub(super) fn count(given: &Given) -> Result<u32, String> {
    match given.text.parse() {
        Ok(count) if count > 0 => Ok(count),
        _ => Err(format!("{:?} is not a number of at least 1", given.text)),
    }
}

pub(super) fn approve(given: &Given) -> Result<Approve, String> {
    match given.text.as_str() {
        "never" => Ok(Approve::Never),
        "sole" => Ok(Approve::Sole),
        "leader" => Ok(Approve::Leader),
        "any" => Ok(Approve::Any),
        other => Err(format!("{other:?} is none of never, sole, leader and any")),
    }
}

pub(super) fn approve_user(given: &Given) -> Result<ApproveUser, String> {
    match given.text.as_str() {
        "drained" => Ok(ApproveUser::Drained),
        "at-once" => Ok(ApproveUser::AtOnce),
        other => Err(format!("{other:?} is neither drained nor at-once")),
    }
}

pub(super) fn expiring(given: &Given) -> Result<Expiring, String> {
    match given.text.as_str() {
        "replace" => Ok(Expiring::Replace),
        "keep" => Ok(Expiring::Keep),
        other => Err(format!("{other:?} is neither replace nor keep")),
    }
}

pub(super) fn during_freeze(given: &Given) -> Result<DuringFreeze, String> {
    match given.text.as_str() {
        "work" => Ok(DuringFreeze::Work),
        "pause" => Ok(DuringFreeze::Pause),
        other => Err(format!("{other:?} is neither work nor pause")),
    }
}

pub(super) fn on_pressure(given: &Given) -> Result<OnPressure, String> {
    match given.text.as_str() {
        "save" => Ok(OnPressure::Save),
        "show" => Ok(OnPressure::Show),
        other => Err(format!("{other:?} is neither save nor show")),
    }
}

/// `None`: jobs begin whatever they take.
pub(super) fn memory_reserve(given: &Given) -> Result<Option<MemoryReserve>, String> {
    if given.text == OFF {
        return Ok(None);
    }
    match given.text.strip_suffix('%') {
        Some(percent) => {
            let percent = percent.trim_end().parse();
            let percent = percent.map_err(|_| format!("{:?} is no percentage, such as 10%", given.text))?;
            Ok(Some(MemoryReserve::Percent(percent)))
        }
        None => parse_size(&given.text)
            .map(|bytes| Some(MemoryReserve::Bytes(bytes)))
            .map_err(|fault| format!("{fault}, or a percentage, or off")),
    }
}

pub(super) fn predicted_failure(given: &Given) -> Result<PredictedFailure, String> {
    match given.text.as_str() {
        "warn" => Ok(PredictedFailure::Warn),
        "drain" => Ok(PredictedFailure::Drain),
        other => Err(format!("{other:?} is neither warn nor drain")),
    }
}

pub(super) fn listen(given: &Given) -> Result<Option<SocketAddr>, String> {
    if given.text == OFF {
        return Ok(None);
    }
    let fault = |_| format!("{:?} is not an IP address with a port, such as 127.0.0.1:9090", given.text);
    given.text.parse().map(Some).map_err(fault)
}

pub(super) fn log_format(given: &Given) -> Result<Option<LogFormat>, String> {
    match given.text.as_str() {
        "" if given.by == By::Default => Ok(None),
        "text" => Ok(Some(LogFormat::Text)),
        "json" => Ok(Some(LogFormat::Json)),
        other => Err(format!("{other:?} is neither text nor json")),
    }
}

pub(super) fn filter(given: &Given) -> Result<EnvFilter, String> {
    // A lone word is the name of a module, so a mistyped level would silence everything.
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
    // Fixed names always form a valid directive.
    let off = unnamed.filter_map(|part| format!("{part}=off").parse().ok());
    Ok(off.fold(filter, EnvFilter::add_directive))
}
