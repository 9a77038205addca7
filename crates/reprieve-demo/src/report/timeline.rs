//! The timeline: a lane for each VM, with what it worked on, and how it ended.

use std::fmt::Write as _;

use maud::{Markup, html};

use super::events;
use super::icons::{BACK, DONE, Icon, KILL, NOTICE};
use super::lanes::{Scale, rows};
use super::words::{at, count, frame, percent, span};
use crate::story::{Shift, ShiftEnd, Story, VmEnd, VmStory};

pub(super) fn section(story: &Story) -> Markup {
    let scale = Scale::of(story);
    html! {
        section id="timeline" aria-labelledby="timeline-title" {
            h2 id="timeline-title" { "Which VM worked on what" }
            p {
                "A lane is the life of one VM, and a bar its time with one frame. A frame that was cut off goes on in "
                "another lane, from the step where its last checkpoint was; point at a bar to see all of its frame."
            }
            (legend())
            div.scroll tabindex="0" role="region" aria-label="Timeline, scrolls sideways" {
                div.lanes role="img" aria-label=(summary(story))
                    style={ "--seconds:" (scale.seconds()) ";--tick:" (scale.tick()) } {
                    div.axis {
                        div.ticks {
                            @for tick in scale.ticks() { span style=(scale.at(tick)) { (tick / 1_000) " s" } }
                        }
                    }
                    @for vm in &story.vms { (lane(vm, scale, story.steps_per_job)) }
                }
            }
            (events::details(story))
        }
    }
}

/// What somebody who can't see the timeline is told instead of it.
fn summary(story: &Story) -> String {
    let vms = count(story.vms.len(), "VM");
    format!(
        "{vms} over {}, with the frames each of them worked on. The list below says the same.",
        span(story.took_ms)
    )
}

fn legend() -> Markup {
    html! {
        ul.legend aria-label="Legend" {
            li { span.swatch.done { (DONE) } " finished" }
            li { span.swatch.back { (BACK) } " handed back after a notice" }
            li { span.swatch.kill { (KILL) } " cut off by a kill" }
            li { span.swatch.again {} " done a second time" }
            li { (NOTICE) span.swatch.notice {} " notice given, the VM has until " (KILL) }
        }
    }
}

fn lane(vm: &VmStory, scale: Scale, steps_per_job: u32) -> Markup {
    let rows = rows(&vm.shifts);
    let height = rows.iter().max().map_or(1, |last| last + 1);
    html! {
        div.lane data-vm=(vm.name) {
            div.name { b { (vm.name) } " " span { (fate(vm)) } }
            div.track style={ "--rows:" (height) } {
                div.life style=(scale.span(vm.began_ms, vm.ended_ms))
                    title={ (vm.name) " lived from " (at(vm.began_ms)) " to " (at(vm.ended_ms)) } {}
                (end(vm, scale))
                @for (shift, row) in vm.shifts.iter().zip(rows) { (bar(vm, shift, row, scale, steps_per_job)) }
            }
        }
    }
}

fn fate(vm: &VmStory) -> String {
    match &vm.end {
        VmEnd::Finished => "to the end".to_owned(),
        VmEnd::Evicted(_) => format!("evicted at {}", at(vm.ended_ms)),
        VmEnd::Killed(_) if vm.announced_in_vain_ms.is_some() => {
            format!("gone at {}, too soon after its notice", at(vm.ended_ms))
        }
        VmEnd::Killed(_) => format!("killed at {}", at(vm.ended_ms)),
    }
}

fn end(vm: &VmStory, scale: Scale) -> Markup {
    let mark = |at_ms: u64, icon: Icon, said: &str| {
        html! { div.mark style=(scale.at(at_ms)) title={ (at(at_ms)) ": " (said) } { (icon) } }
    };
    let given = |announced_ms: u64| {
        html! {
            div.notice style=(scale.span(announced_ms, vm.ended_ms)) {}
            (mark(announced_ms, NOTICE, "notice given"))
        }
    };
    match &vm.end {
        VmEnd::Finished => html! {},
        VmEnd::Evicted(eviction) => html! {
            (given(eviction.announced_ms))
            (mark(vm.ended_ms, KILL, "the VM is gone"))
        },
        VmEnd::Killed(_) => html! {
            @if let Some(announced_ms) = vm.announced_in_vain_ms { (given(announced_ms)) }
            (mark(vm.ended_ms, KILL, killed(vm)))
        },
    }
}

fn killed(vm: &VmStory) -> &'static str {
    match vm.announced_in_vain_ms {
        None => "killed without a notice",
        Some(_) => "gone before it could act on its notice",
    }
}

fn bar(vm: &VmStory, shift: &Shift, row: usize, scale: Scale, steps_per_job: u32) -> Markup {
    let (class, icon, ended) = match shift.end {
        ShiftEnd::Completed => ("done", DONE, "finished"),
        ShiftEnd::Released => ("back", BACK, "handed back"),
        ShiftEnd::Killed => ("kill", KILL, "cut off by a kill"),
    };
    let begun = if shift.first_step == 0 {
        "from its beginning".to_owned()
    } else {
        format!("from step {} of {steps_per_job}", shift.first_step)
    };
    let again = if shift.redone == 0 { String::new() } else { format!(", {} done again", shift.redone) };
    html! {
        div class={ "bar " (class) " j" (shift.job) }
            style={ (scale.span(shift.from_ms, shift.to_ms)) ";--row:" (row) }
            title={
                (vm.name) ", " (frame(shift.job)) ": " (begun) ", " (count(shift.steps, "step")) (again) ", " (ended)
                ", " (at(shift.from_ms)) " to " (at(shift.to_ms))
            } {
            @if shift.redone > 0 {
                div.again style={ "width:" (percent(shift.redone.into(), shift.steps.into())) } {}
            }
            span.number { (format!("{:02}", shift.job)) }
            @if shift.first_step > 0 { span.from { "from step " (shift.first_step) } }
            (icon)
        }
    }
}

/// Styles that fade all other bars while one frame is pointed at: what a script would otherwise do.
pub(super) fn follow(story: &Story) -> String {
    (0..story.jobs.len()).fold(String::new(), |mut style, job| {
        // Writing to a string can't fail.
        let _infallible = write!(style, ".lanes:has(.j{job}:hover) .bar:not(.j{job}){{opacity:.25}}");
        style
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::made_up;

    /// All that a pointer finds out about a VM's lane.
    fn titles(story: &Story, vm: usize) -> Vec<String> {
        let lane = lane(&story.vms[vm], Scale::of(story), story.steps_per_job).into_string();
        lane.split("title=\"").skip(1).filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())).collect()
    }

    #[test]
    fn every_bar_and_mark_says_what_it_is() {
        let (story, _) = made_up::good();
        let all: Vec<_> = (0..story.vms.len()).flat_map(|vm| titles(&story, vm)).collect();
        insta::assert_snapshot!(all.join("\n"));
    }

    #[test]
    fn a_notice_that_came_too_late_is_shown_as_one() {
        let (story, _) = made_up::bad();
        let titles = titles(&story, 1);
        assert!(titles.contains(&"5.5 s: notice given".to_owned()), "{titles:?}");
        assert!(titles.contains(&"6.0 s: gone before it could act on its notice".to_owned()), "{titles:?}");
    }

    #[test]
    fn a_frame_is_redone_over_the_part_of_its_bar_that_was() {
        let (story, _) = made_up::good();
        let lane = lane(&story.vms[2], Scale::of(&story), story.steps_per_job).into_string();
        assert_eq!(lane.matches("class=\"again\"").count(), 1);
        assert!(
            lane.contains("<div class=\"again\" style=\"width:42.857%\">"),
            "three steps of seven: {lane}"
        );
    }
}
