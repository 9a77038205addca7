//! The timeline as a list, for those who read rather than look.

use maud::{Markup, html};

use super::words::{at, count, frame, span};
use crate::story::{ShiftEnd, Story, VmEnd, VmStory};

/// The list, folded up.
pub(super) fn details(story: &Story) -> Markup {
    html! {
        details {
            summary { "The same as a list" }
            table.events {
                thead { tr { @for title in ["At", "VM", "What happened"] { th scope="col" { (title) } } } }
                tbody {
                    @for (ms, vm, what) in of(story) {
                        tr { td.number { (at(ms)) } td { (vm) } td { (what) } }
                    }
                }
            }
        }
    }
}

/// All that happened, in order: when, on which VM, and what.
fn of(story: &Story) -> Vec<(u64, &str, String)> {
    let mut events: Vec<_> = story.vms.iter().flat_map(on).collect();
    events.sort_by_key(|(ms, ..)| *ms);
    events
}

fn on(vm: &VmStory) -> Vec<(u64, &str, String)> {
    let mut events = vec![(vm.began_ms, "starts".to_owned())];
    for shift in &vm.shifts {
        let frame = frame(shift.job);
        events.push((
            shift.from_ms,
            match shift.first_step {
                0 => format!("begins {frame}"),
                step => format!("goes on with {frame} from step {step}"),
            },
        ));
        let again =
            if shift.redone == 0 { String::new() } else { format!(", {} of them again", shift.redone) };
        let steps = format!("after {}{again}", count(shift.steps, "step"));
        events.push((
            shift.to_ms,
            match shift.end {
                ShiftEnd::Completed => format!("has finished {frame} {steps}"),
                ShiftEnd::Released => format!("hands {frame} back {steps}"),
                ShiftEnd::Killed => format!("loses {frame} {steps}"),
            },
        ));
    }
    let notice =
        |announced_ms| format!("is given notice: gone in {}", span(vm.ended_ms.saturating_sub(announced_ms)));
    match &vm.end {
        VmEnd::Finished => events.push((vm.ended_ms, "stops, as nothing is left to do".to_owned())),
        VmEnd::Killed(_) => match vm.announced_in_vain_ms {
            None => events.push((vm.ended_ms, "is killed without a notice".to_owned())),
            Some(announced_ms) => {
                events.push((announced_ms, notice(announced_ms)));
                events.push((vm.ended_ms, "is gone before it could act on its notice".to_owned()));
            }
        },
        VmEnd::Evicted(eviction) => {
            events.push((eviction.announced_ms, notice(eviction.announced_ms)));
            let released_ms = eviction.noticed_ms + eviction.released_after_ms;
            let after = span(eviction.released_after_ms);
            events.push((released_ms, format!("holds nothing any more, {after} after it read the notice")));
            events.push((vm.ended_ms, "is gone".to_owned()));
        }
    }
    events.into_iter().map(|(ms, what)| (ms, vm.name.as_str(), what)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::made_up;

    #[test]
    fn everything_is_said_in_the_order_in_which_it_happened() {
        let (story, _) = made_up::good();
        let lines = of(&story).into_iter().map(|(ms, vm, what)| format!("{} {vm} {what}", at(ms)));
        insta::assert_snapshot!(lines.collect::<Vec<_>>().join("\n"));
    }
}
