//! The cost of evictions and kills: repeated work, and work that checkpoints saved.

use maud::{Markup, html};

use crate::format::{at, count, frame, list, percent, share, span};
use crate::history::{Eviction, History, Recovery, ShiftEnd, VmEnd, VmHistory};
use crate::summary::Summary;

pub(super) fn section(history: &History, summary: &Summary) -> Markup {
    let work = Work::of(history, summary);
    let mut taken: Vec<_> = history.vms.iter().filter(|vm| !matches!(vm.end, VmEnd::Finished)).collect();
    taken.sort_by_key(|vm| vm.ended_ms);
    html! {
        section id="cost" aria-labelledby="cost-title" {
            h2 id="cost-title" { "Cost of the interruptions" }
            p { (work.sentence()) }
            @if work.cut > 0 { (work.bar()) }
            @if !taken.is_empty() {
                table {
                    caption { "Evictions and kills" }
                    thead {
                        tr { @for title in ["At", "VM", "Its jobs", "Lost"] { th scope="col" { (title) } } }
                    }
                    tbody { @for vm in taken { (row(vm)) } }
                }
                @if let Some(waited) = waited(history) { p { (waited) } }
            }
        }
    }
}

/// Why a killed VM's frames lay idle, where that was for long.
fn waited(history: &History) -> Option<String> {
    let lease_ms = history.lease_ms().filter(|_| history.recoveries().next().is_some())?;
    Some(format!(
        "The jobs of a killed VM waited for the rest of their leases, {} at most, and for a VM with a free slot: a Storage \
         queue does not see that a machine has died. After an eviction there is no such wait, because released jobs \
         are available at once.",
        span(lease_ms)
    ))
}

/// Work in steps.
struct Work {
    /// All there was to do.
    needed: u64,
    /// Steps of frames that were then interrupted: without checkpoints all of them would be lost.
    cut: u64,
    /// Repeated steps.
    again: u64,
}

impl Work {
    fn of(history: &History, summary: &Summary) -> Self {
        let cut =
            history.vms.iter().flat_map(|vm| &vm.shifts).filter(|shift| shift.end != ShiftEnd::Completed);
        Self {
            needed: summary.steps_total,
            cut: cut.map(|shift| u64::from(shift.steps)).sum(),
            again: summary.steps_redone,
        }
    }

    fn saved(&self) -> u64 {
        self.cut.saturating_sub(self.again)
    }

    fn sentence(&self) -> String {
        if self.cut == 0 {
            return "No VM was evicted or killed during a frame, so no work was at risk.".to_owned();
        }
        format!(
            "Evicted and killed VMs had done {} of frames that they did not complete. Checkpoints saved {} of them, and {} \
             were repeated: {} of all {}. Without checkpoints, all {} would be lost.",
            count(self.cut, "step"),
            self.saved(),
            self.again,
            share(self.again, self.needed),
            count(self.needed, "step"),
            self.cut,
        )
    }

    fn bar(&self) -> Markup {
        let (saved, again) = (count(self.saved(), "step"), count(self.again, "step"));
        html! {
            div.balance role="img" aria-label={ (saved) " saved by checkpoints, " (again) " repeated" } {
                div.saved style={ "width:" (percent(self.saved(), self.cut)) } {}
                div.lost style={ "width:" (percent(self.again, self.cut)) } {}
            }
            ul.legend aria-hidden="true" {
                li { span.swatch.saved {} " " (saved) " saved" }
                li { span.swatch.lost {} " " (again) " repeated" }
            }
        }
    }
}

fn row(vm: &VmHistory) -> Markup {
    let (how, went_on, lost) = match &vm.end {
        VmEnd::Finished => return html! {},
        VmEnd::Evicted(eviction) => (
            "evicted",
            released(eviction),
            lost(span(eviction.work_lost_ms) + " of work", eviction.work_lost_ms),
        ),
        VmEnd::Killed(recoveries) => {
            let again: u64 = recoveries.iter().map(|recovery| u64::from(recovery.steps_redone)).sum();
            ("killed", recovered(recoveries), lost(count(again, "step"), again))
        }
    };
    html! {
        tr {
            td.number { (at(vm.ended_ms)) }
            td { (vm.name) " " span.how { (how) } }
            td { (went_on) }
            td.number { (lost) }
        }
    }
}

fn lost(amount: String, how_much: u64) -> String {
    if how_much == 0 { "nothing".to_owned() } else { amount }
}

fn released(eviction: &Eviction) -> String {
    let after = span(eviction.released_after_ms);
    if eviction.held == 0 {
        return "held no frame".to_owned();
    }
    let all = count(eviction.held, "frame");
    match eviction.abandoned {
        0 => format!("{all} released {after} after it read the notice"),
        left => format!("{} of its {all} released in time", eviction.held.saturating_sub(left)),
    }
}

fn recovered(recoveries: &[Recovery]) -> String {
    let each = |recovery: &Recovery| format!("{} after {}", frame(recovery.job), span(recovery.after_ms));
    let each: Vec<_> = recoveries.iter().map(each).collect();
    if each.is_empty() { "held no frame".to_owned() } else { format!("another VM resumed {}", list(&each)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;
    use crate::store::StoreKind;

    #[test]
    fn work_saved_is_what_was_cut_off_and_not_done_again() {
        let (mut history, mut summary) = fixtures::good();
        insta::assert_snapshot!(Work::of(&history, &summary).sentence());
        for shift in history.vms.iter_mut().flat_map(|vm| &mut vm.shifts) {
            shift.end = ShiftEnd::Completed;
        }
        summary.steps_redone = 0;
        assert!(Work::of(&history, &summary).sentence().starts_with("No VM was evicted or killed"));
    }

    #[test]
    fn the_reason_for_idle_frames_is_shown_only_after_a_kill() {
        let (mut history, _) = fixtures::good();
        assert_eq!(waited(&history), None);
        history.store = StoreKind::Azurite;
        assert!(
            waited(&history).is_some_and(|reason| reason.contains("the rest of their leases, 6 s at most"))
        );
        history.vms.retain(|vm| !matches!(vm.end, VmEnd::Killed(_)));
        assert_eq!(waited(&history), None, "no VM was killed");
    }

    #[test]
    fn each_eviction_and_kill_shows_how_its_work_continued() {
        let (history, _) = fixtures::good();
        let rows = history.vms.iter().map(|vm| row(vm).into_string()).collect::<Vec<_>>();
        insta::assert_snapshot!(rows.join("\n"));
    }
}
