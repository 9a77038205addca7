//! Rules about the end: every job is in its right place, and little is left behind.

use reprieve_core::record::Status;

use super::Checker;
use super::view::MessageState;
use crate::fleet::store::FinalStore;

impl Checker<'_> {
    pub(super) fn finish(&mut self, store: &FinalStore, rested: bool) {
        if !rested {
            let open =
                self.view.messages.iter().filter(|(_, it)| {
                    matches!(it.state, MessageState::Visible(_) | MessageState::Leased { .. })
                });
            let open: Vec<_> = open.map(|(id, it)| format!("{id} of job {}", it.job)).collect();
            self.accuse("no rest", None, format!("messages are left: {}", open.join(", ")));
            return;
        }
        for job in 0..self.plan.jobs.len() {
            self.settled(job, store);
        }
        for missing in &store.missing {
            self.accuse("payload", None, format!("{missing} is named by a record, and is not there"));
        }
        // This store writes a payload and the record that names it in one operation, so every
        // payload is named.
        for unnamed in &store.unnamed {
            self.accuse("left behind", None, format!("no record names the payload {unnamed}"));
        }
        for (job, record) in &store.records {
            // A record that a late write created has no expiry; it is removed by its age.
            let done = self.view.jobs.get(*job).is_some_and(|job| job.done && !job.late);
            let dead_lettered = matches!(record.status, Status::DeadLettered { .. });
            if done && !dead_lettered && record.expires_unix_ms.is_none() {
                let why = format!("its record stays, {:?}, without an expiry", record.status);
                self.accuse("left behind", Some(*job), why);
            }
        }
    }

    /// Checks that a good job is done and a rogue is in the poison queue.
    fn settled(&mut self, job: usize, store: &FinalStore) {
        let (plan, view) = (&self.plan.jobs[job], &self.view.jobs[job]);
        if !view.sent {
            return;
        }
        let done = if plan.result { store.results.contains_key(&job) } else { store.outputs.contains(&job) };
        let letter = store
            .letters
            .iter()
            .any(|letter| self.view.messages.get(&letter.message).is_some_and(|message| message.job == job));
        let record = store.records.get(&job).map(|record| &record.status);
        if view.asked_to_cancel.is_some() && record == Some(&Status::Cancelled) && !done && !letter {
            return;
        }
        if plan.nature.is_good() && !done && !letter {
            self.accuse("lost", Some(job), "it is neither done nor in the poison queue");
        }
        if !plan.nature.is_good() && (done || !letter) {
            let why = format!("done: {done}, in the poison queue: {letter}");
            self.accuse("rogue", Some(job), why);
        }
    }
}
