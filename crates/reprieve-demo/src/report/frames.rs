//! The frames as pictures, and the VMs that worked on each.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use maud::{Markup, html};

use super::KILL;
use crate::format::frame;
use crate::history::{History, JobHistory, Shift, ShiftEnd};

pub(super) fn section(history: &History) -> Markup {
    html! {
        section id="frames" aria-labelledby="frames-title" {
            h2 id="frames-title" { "The frames" }
            p { "The results, and the VMs that worked on each frame." }
            div.frames { @for (number, job) in history.jobs.iter().enumerate() { (figure(history, number, job)) } }
        }
    }
}

fn figure(history: &History, number: usize, job: &JobHistory) -> Markup {
    let shifts = shifts(history, number);
    let vms: Vec<_> = shifts.iter().map(|(vm, _)| *vm).collect();
    let interrupted = shifts.iter().filter(|(_, shift)| shift.end != ShiftEnd::Completed).count();
    let faults = faults(job);
    html! {
        figure id={ "frame-" (number) } .bad[!faults.is_empty()] {
            @match &job.png {
                Some(png) => {
                    img alt={ "Frame " (format!("{number:02}")) " of the zoom" }
                        src={ "data:image/png;base64," (STANDARD.encode(png)) };
                }
                None => div.missing { "no picture" },
            }
            figcaption title={ "Job " (job.id) } {
                b { (frame(number)) }
                @for fault in faults { " " span.fault { (KILL) (fault) } }
                span.path { (vms.join(" → ")) }
                span.path { (interruptions(interrupted)) }
            }
        }
    }
}

/// The VMs that worked on a job and their shifts, in order.
fn shifts(history: &History, job: usize) -> Vec<(&str, &Shift)> {
    let all = history.vms.iter().flat_map(|vm| vm.shifts.iter().map(|shift| (vm.name.as_str(), shift)));
    let mut shifts: Vec<_> = all.filter(|(_, shift)| shift.job == job).collect();
    shifts.sort_by_key(|(_, shift)| shift.from_ms);
    shifts
}

/// The failed checks of a frame.
pub(super) fn faults(job: &JobHistory) -> Vec<String> {
    let mut faults = Vec::new();
    if job.png.is_none() || job.completions == 0 {
        faults.push("lost".to_owned());
    }
    if job.png.is_some() && !job.matches_reference {
        faults.push("differs from an uninterrupted render".to_owned());
    }
    if job.completions > 1 {
        faults.push(format!("completed {} times", job.completions));
    }
    faults
}

fn interruptions(times: usize) -> String {
    match times {
        0 => "never interrupted".to_owned(),
        1 => "interrupted once".to_owned(),
        2 => "interrupted twice".to_owned(),
        many => format!("interrupted {many} times"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;

    /// A figure without its picture's bytes.
    fn shown(history: &History, number: usize) -> String {
        let html = figure(history, number, &history.jobs[number]).into_string();
        match html.split_once("base64,") {
            Some((before, after)) => {
                format!("{before}…{}", &after[after.find('"').expect("the attribute's end")..])
            }
            None => html,
        }
    }

    #[test]
    fn a_frame_names_the_vms_that_worked_on_it() {
        insta::assert_snapshot!(shown(&fixtures::good().0, 0));
    }

    #[test]
    fn a_lost_wrong_or_duplicate_frame_is_marked() {
        let (history, _) = fixtures::bad();
        let shown: Vec<_> = (0..3).map(|number| shown(&history, number)).collect();
        insta::assert_snapshot!(shown.join("\n"));
    }
}
