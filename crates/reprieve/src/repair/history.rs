//! When a repair of this VM was last asked for, and whether its fault was gone since: from the last diagnosis in the
//! store, which a worker's successors and the VM's other workers read, too, and from what this worker did itself.
//!
//! A fault that lasts is the same repair, whoever asks for it again. One that was gone and came back is another one.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use reprieve_core::clock::unix_millis;
use reprieve_core::healing::Fault;
use reprieve_core::ports::Store;
use reprieve_core::retry::bounded;
use reprieve_core::{BlobName, Error, ErrorKind, Result};
use tokio::time::Instant;

use super::diagnosis::Diagnosis;
use super::since_boot::since_boot;

/// The longest wait for one call of the store.
pub(super) const TRY: Duration = Duration::from_secs(10);

/// The repairs of this VM, as far as this worker knows.
pub(super) struct History {
    store: Store,
    vm: String,
    boot: String,
    began: Instant,
    /// The places that have a fault, or had one that is not yet known to be gone.
    faulty: BTreeSet<String>,
    /// When a fault of a place was last seen to be gone.
    gone: BTreeMap<String, Instant>,
    /// The diagnosis may not say yet that its fault was gone.
    is_to_note: bool,
    has_failed: bool,
    /// When this worker last reported the VM, or followed another one.
    asked: Option<Instant>,
    /// Its fault was gone since.
    is_over: bool,
}

/// The last diagnosis, and how old it is at least.
struct Last {
    diagnosis: Diagnosis,
    ago: Duration,
}

impl History {
    pub(super) fn new(store: Store, vm: String, boot: String) -> Self {
        Self {
            store,
            vm,
            boot,
            began: Instant::now(),
            faulty: BTreeSet::new(),
            gone: BTreeMap::new(),
            is_to_note: false,
            has_failed: false,
            asked: None,
            is_over: false,
        }
    }

    /// The VM's name, or its boot while that is unknown.
    pub(super) fn name(&self) -> &str {
        if self.vm.is_empty() { &self.boot } else { &self.vm }
    }

    /// Returns the last diagnosis if it is of this boot.
    pub(super) async fn of_this_boot(&self) -> Result<Option<Diagnosis>> {
        Ok(self.last().await?.map(|last| last.diagnosis).filter(|diagnosis| diagnosis.boot == self.boot))
    }

    /// Notes the fault of a look; without any, all that were seen before are gone.
    pub(super) fn note(&mut self, fault: Option<&Fault>) {
        match fault {
            Some(fault) => {
                self.faulty.insert(fault.place.clone());
            }
            None => {
                for place in std::mem::take(&mut self.faulty) {
                    self.note_sound(place);
                }
            }
        }
    }

    /// Notes that this place has no fault any more.
    pub(super) fn note_sound(&mut self, place: String) {
        self.gone.insert(place, Instant::now());
        (self.is_to_note, self.is_over) = (true, true);
    }

    /// Notes that this worker reports the VM from now on, or follows another one.
    pub(super) fn note_asked(&mut self) {
        (self.asked, self.is_over) = (Some(Instant::now()), false);
    }

    /// Notes that a repair that nobody made ends now: the next one is an hour later.
    pub(super) fn note_given_up(&mut self) {
        (self.asked, self.is_over) = (Some(Instant::now()), true);
    }

    /// Returns how long ago another repair than that of a fault which lasts was asked for.
    pub(super) async fn last_repair(&self) -> Result<Option<Duration>> {
        let last = self.last().await?.filter(|last| self.is_another(last)).map(|last| last.ago);
        let own = self.asked.filter(|_| self.is_over).map(|at| at.elapsed());
        Ok(last.into_iter().chain(own).min())
    }

    fn is_another(&self, Last { diagnosis, ago }: &Last) -> bool {
        let is_gone = || self.gone.get(&diagnosis.place).is_some_and(|gone| gone.elapsed() <= *ago);
        diagnosis.boot != self.boot || diagnosis.healed || is_gone()
    }

    /// Writes down what this worker's successors in this boot must know: that a fault was gone. To be called again and
    /// again: it does nothing when that is done, and tries again when the store did not answer.
    pub(super) async fn write_down(&mut self) {
        if !self.is_to_note {
            return;
        }
        match self.write_healed().await {
            Ok(()) => (self.is_to_note, self.has_failed) = (false, false),
            Err(error) if !std::mem::replace(&mut self.has_failed, true) => {
                tracing::warn!(%error, "failed to write down that the fault of this VM is gone; trying again");
            }
            Err(_) => {}
        }
    }

    async fn write_healed(&self) -> Result<()> {
        let Some(last) = self.last().await? else { return Ok(()) };
        if last.diagnosis.boot != self.boot || last.diagnosis.healed || !self.is_another(&last) {
            return Ok(());
        }
        self.put(serde_json::to_vec(&Diagnosis { healed: true, ..last.diagnosis }).map_err(into_error)?).await
    }

    /// Stores a diagnosis, in JSON, in place of the one before.
    pub(super) async fn put(&self, json: Vec<u8>) -> Result<()> {
        bounded("write a diagnosis", TRY, self.store.blobs.put(&self.blob()?, json, None)).await
    }

    /// The blob of the VM's last diagnosis: one for each VM, which the next one replaces.
    fn blob(&self) -> Result<BlobName> {
        BlobName::parse(format!("{}{}.json", reprieve_core::worker::DIAGNOSES, self.name()))
    }

    async fn last(&self) -> Result<Option<Last>> {
        let name = self.blob()?;
        let page = bounded("list diagnoses", TRY, self.store.blobs.page(name.as_str(), None)).await?;
        let Some(listed) = page.entries.iter().find(|blob| blob.name == name) else { return Ok(None) };
        let by_store = page.now_unix_ms.saturating_sub(listed.modified_unix_ms);
        let Some(json) = bounded("read a diagnosis", TRY, self.store.blobs.get(&name)).await? else {
            return Ok(None);
        };
        // One that can't be read was written by a newer version, on another boot for all that is known.
        let diagnosis: Diagnosis = serde_json::from_slice(&json).unwrap_or_default();
        let ago = self.age(&diagnosis, by_store);
        Ok(Some(Last { diagnosis, ago }))
    }

    /// How long ago a diagnosis was written. In the same boot, a clock that nobody sets says it. Of another boot, the
    /// store's clock and the machine's: the smaller, as either may have jumped ahead. If one has jumped back, the
    /// diagnosis is as old as this worker at least.
    fn age(&self, diagnosis: &Diagnosis, by_store_ms: i64) -> Duration {
        let same_boot = !self.boot.is_empty() && diagnosis.boot == self.boot;
        let written = diagnosis.since_boot_ms.filter(|_| same_boot).map(Duration::from_millis);
        if let Some(ago) = written.and_then(|written| since_boot().checked_sub(written)) {
            return ago;
        }
        let by_machine_ms = match diagnosis.at_unix_ms {
            0 => by_store_ms,
            at => unix_millis().saturating_sub(at),
        };
        let by_clocks = Duration::from_millis(u64::try_from(by_store_ms.min(by_machine_ms)).unwrap_or(0));
        if same_boot { by_clocks } else { by_clocks.max(self.began.elapsed()) }
    }
}

/// Why a diagnosis could not be made.
pub(super) fn into_error(error: impl Into<std::io::Error>) -> Error {
    let error = error.into();
    Error::new(ErrorKind::Internal, "collect a diagnosis", error.to_string()).with_source(error)
}
