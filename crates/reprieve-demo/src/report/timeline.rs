//! The timeline: a lane for each VM, with what it worked on and how it ended; and the same as a
//! list.

use std::fmt::Write as _;

use maud::{Markup, html};

use super::{BACK, DONE, Icon, KILL, NOTICE};
use crate::format::{at, count, frame, percent, span};
use crate::history::{History, Shift, ShiftEnd, VmEnd, VmHistory};

pub(super) fn section(history: &History) -> Markup {
    let scale = Scale::of(history);
    html! {
        section id="timeline" aria-labelledby="timeline-title" {
            h2 id="timeline-title" { "Which VM worked on what" }
            p {
                "Each lane is one VM, and each bar is its work on one frame. An interrupted frame resumes in another lane "
                "at the step of its last checkpoint. Point at a bar to highlight its frame."
            }
            (legend())
            div.scroll tabindex="0" role="region" aria-label="Timeline, scrolls sideways" {
                div.lanes role="img" aria-label=(summary(history))
                    style={ "--seconds:" (scale.seconds()) ";--tick:" (scale.tick()) } {
                    div.axis {
                        div.ticks {
                            @for tick in scale.ticks() { span style=(scale.at(tick)) { (tick / 1_000) " s" } }
                        }
                    }
                    @for vm in &history.vms { (lane(vm, scale, history.steps_per_job)) }
                }
            }
            (details(history))
        }
    }
}

/// The timeline's text alternative.
fn summary(history: &History) -> String {
    let vms = count(history.vms.len(), "VM");
    format!(
        "{vms} over {}, with the frames that each worked on. The list below has the same data.",
        span(history.took_ms)
    )
}

fn legend() -> Markup {
    html! {
        ul.legend aria-label="Legend" {
            li { span.swatch.done { (DONE) } " completed" }
            li { span.swatch.back { (BACK) } " released after a notice" }
            li { span.swatch.kill { (KILL) } " interrupted by a kill" }
            li { span.swatch.again {} " repeated steps" }
            li { (NOTICE) span.swatch.notice {} " notice, until the VM ends at " (KILL) }
        }
    }
}

fn lane(vm: &VmHistory, scale: Scale, steps_per_job: u32) -> Markup {
    let rows = rows(&vm.shifts);
    let height = rows.iter().max().map_or(1, |last| last + 1);
    html! {
        div.lane data-vm=(vm.name) {
            div.name { b { (vm.name) } " " span { (outcome(vm)) } }
            div.track style={ "--rows:" (height) } {
                div.life style=(scale.span(vm.began_ms, vm.ended_ms))
                    title={ (vm.name) " ran from " (at(vm.began_ms)) " to " (at(vm.ended_ms)) } {}
                (end(vm, scale))
                @for (shift, row) in vm.shifts.iter().zip(rows) { (bar(vm, shift, row, scale, steps_per_job)) }
            }
        }
    }
}

fn outcome(vm: &VmHistory) -> String {
    match &vm.end {
        VmEnd::Finished => "ran to the end".to_owned(),
        VmEnd::Evicted(_) => format!("evicted at {}", at(vm.ended_ms)),
        VmEnd::Killed(_) if vm.missed_notice_ms.is_some() => {
            format!("evicted at {}, too soon after its notice", at(vm.ended_ms))
        }
        VmEnd::Killed(_) => format!("killed at {}", at(vm.ended_ms)),
    }
}

fn end(vm: &VmHistory, scale: Scale) -> Markup {
    let mark = |at_ms: u64, icon: Icon, text: &str| {
        html! { div.mark style=(scale.at(at_ms)) title={ (at(at_ms)) ": " (text) } { (icon) } }
    };
    let given = |announced_ms: u64| {
        html! {
            div.notice style=(scale.span(announced_ms, vm.ended_ms)) {}
            (mark(announced_ms, NOTICE, "eviction notice"))
        }
    };
    match &vm.end {
        VmEnd::Finished => html! {},
        VmEnd::Evicted(eviction) => html! {
            (given(eviction.announced_ms))
            (mark(vm.ended_ms, KILL, "the VM is evicted"))
        },
        VmEnd::Killed(_) => html! {
            @if let Some(announced_ms) = vm.missed_notice_ms { (given(announced_ms)) }
            (mark(vm.ended_ms, KILL, killed(vm)))
        },
    }
}

fn killed(vm: &VmHistory) -> &'static str {
    match vm.missed_notice_ms {
        None => "killed without a notice",
        Some(_) => "evicted before it could act on the notice",
    }
}

fn bar(vm: &VmHistory, shift: &Shift, row: usize, scale: Scale, steps_per_job: u32) -> Markup {
    let (class, icon, ended) = match shift.end {
        ShiftEnd::Completed => ("done", DONE, "completed"),
        ShiftEnd::Released => ("back", BACK, "released"),
        ShiftEnd::Killed => ("kill", KILL, "interrupted by a kill"),
    };
    let begun = if shift.first_step == 0 {
        "from the first step".to_owned()
    } else {
        format!("from step {} of {steps_per_job}", shift.first_step)
    };
    let again = if shift.redone == 0 { String::new() } else { format!(", {} repeated", shift.redone) };
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
pub(super) fn follow(history: &History) -> String {
    (0..history.jobs.len()).fold(String::new(), |mut style, job| {
        // Writing to a string can't fail.
        let _infallible = write!(style, ".lanes:has(.j{job}:hover) .bar:not(.j{job}){{opacity:.25}}");
        style
    })
}

/// The most ticks that fit with their labels.
const TICKS_MAX: u64 = 11;

/// The timeline's length in time, from which all positions follow.
#[derive(Clone, Copy)]
pub(super) struct Scale {
    end_ms: u64,
}

impl Scale {
    pub(super) fn of(history: &History) -> Self {
        let last = history.vms.iter().map(|vm| vm.ended_ms).max();
        Self { end_ms: last.unwrap_or(0).max(history.took_ms).max(1) }
    }

    /// `left` of a point in time.
    pub(super) fn at(self, ms: u64) -> String {
        format!("left:{}", percent(ms, self.end_ms))
    }

    /// `left` and `width` of a span.
    pub(super) fn span(self, from_ms: u64, to_ms: u64) -> String {
        format!("{};width:{}", self.at(from_ms), percent(to_ms.saturating_sub(from_ms), self.end_ms))
    }

    /// Its length in seconds, by which the style sheet gives it room.
    pub(super) fn seconds(self) -> u64 {
        self.end_ms.div_ceil(1_000)
    }

    /// From one tick to the next, in milliseconds.
    pub(super) fn tick_ms(self) -> u64 {
        let fits = |tick: &u64| self.end_ms / tick < TICKS_MAX;
        let round = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600].map(|seconds| seconds * 1_000);
        round.into_iter().find(fits).unwrap_or(self.end_ms)
    }

    /// The ticks themselves. None so near the end that its label would stand outside.
    pub(super) fn ticks(self) -> impl Iterator<Item = u64> {
        let tick = self.tick_ms();
        (0..).map(move |number| number * tick).take_while(move |at| at + tick / 3 < self.end_ms)
    }

    /// How far apart ticks are, as a part of the whole.
    pub(super) fn tick(self) -> String {
        percent(self.tick_ms(), self.end_ms)
    }
}

/// A row for each shift, so that no two overlap in one: the first that is free by then. Shifts come
/// in the order in which they began.
pub(super) fn rows(shifts: &[Shift]) -> Vec<usize> {
    let mut free_from: Vec<u64> = Vec::new();
    let row = |shift: &Shift| {
        let free = free_from.iter().position(|&from| from <= shift.from_ms);
        let row = free.unwrap_or(free_from.len());
        if row == free_from.len() {
            free_from.push(0);
        }
        free_from[row] = shift.to_ms;
        row
    };
    shifts.iter().map(row).collect()
}

/// The list, folded up.
pub(super) fn details(history: &History) -> Markup {
    html! {
        details {
            summary { "The timeline as a list" }
            table.events {
                thead { tr { @for title in ["At", "VM", "Event"] { th scope="col" { (title) } } } }
                tbody {
                    @for (ms, vm, what) in of(history) {
                        tr { td.number { (at(ms)) } td { (vm) } td { (what) } }
                    }
                }
            }
        }
    }
}

/// All that happened, in order: when, on which VM, and what.
fn of(history: &History) -> Vec<(u64, &str, String)> {
    let mut events: Vec<_> = history.vms.iter().flat_map(on).collect();
    events.sort_by_key(|(ms, ..)| *ms);
    events
}

fn on(vm: &VmHistory) -> Vec<(u64, &str, String)> {
    let mut events = vec![(vm.began_ms, "starts".to_owned())];
    for shift in &vm.shifts {
        let frame = frame(shift.job);
        events.push((
            shift.from_ms,
            match shift.first_step {
                0 => format!("starts {frame}"),
                step => format!("resumes {frame} at step {step}"),
            },
        ));
        let again =
            if shift.redone == 0 { String::new() } else { format!(", {} of them repeated", shift.redone) };
        let steps = format!("after {}{again}", count(shift.steps, "step"));
        events.push((
            shift.to_ms,
            match shift.end {
                ShiftEnd::Completed => format!("completes {frame} {steps}"),
                ShiftEnd::Released => format!("releases {frame} {steps}"),
                ShiftEnd::Killed => format!("loses {frame} {steps}"),
            },
        ));
    }
    let notice = |announced_ms| {
        format!("gets an eviction notice of {}", span(vm.ended_ms.saturating_sub(announced_ms)))
    };
    match &vm.end {
        VmEnd::Finished => events.push((vm.ended_ms, "stops, because all jobs are completed".to_owned())),
        VmEnd::Killed(_) => match vm.missed_notice_ms {
            None => events.push((vm.ended_ms, "is killed without a notice".to_owned())),
            Some(announced_ms) => {
                events.push((announced_ms, notice(announced_ms)));
                events.push((vm.ended_ms, "is evicted before it could act on the notice".to_owned()));
            }
        },
        VmEnd::Evicted(eviction) => {
            events.push((eviction.announced_ms, notice(eviction.announced_ms)));
            let released_ms = eviction.noticed_ms + eviction.released_after_ms;
            let after = span(eviction.released_after_ms);
            events.push((released_ms, format!("has released everything, {after} after it read the notice")));
            events.push((vm.ended_ms, "is evicted".to_owned()));
        }
    }
    events.into_iter().map(|(ms, what)| (ms, vm.name.as_str(), what)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;
    use crate::history::ShiftEnd;

    /// All that a pointer finds out about a VM's lane.
    fn titles(history: &History, vm: usize) -> Vec<String> {
        let lane = lane(&history.vms[vm], Scale::of(history), history.steps_per_job).into_string();
        lane.split("title=\"").skip(1).filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())).collect()
    }

    #[test]
    fn every_bar_and_mark_has_a_title() {
        let (history, _) = fixtures::good();
        let all: Vec<_> = (0..history.vms.len()).flat_map(|vm| titles(&history, vm)).collect();
        insta::assert_snapshot!(all.join("\n"));
    }

    #[test]
    fn a_notice_that_came_too_late_is_shown_as_one() {
        let (history, _) = fixtures::bad();
        let titles = titles(&history, 1);
        assert!(titles.contains(&"5.5 s: eviction notice".to_owned()), "{titles:?}");
        assert!(
            titles.contains(&"6.0 s: evicted before it could act on the notice".to_owned()),
            "{titles:?}"
        );
    }

    #[test]
    fn a_frame_is_redone_over_the_part_of_its_bar_that_was() {
        let (history, _) = fixtures::good();
        let lane = lane(&history.vms[2], Scale::of(&history), history.steps_per_job).into_string();
        assert_eq!(lane.matches("class=\"again\"").count(), 1);
        assert!(
            lane.contains("<div class=\"again\" style=\"width:42.857%\">"),
            "three steps of seven: {lane}"
        );
    }

    #[test]
    fn shifts_that_overlap_have_rows_of_their_own() {
        let shifts = [(0, 10), (0, 5), (5, 20), (6, 7), (10, 11)]
            .map(|when| fixtures::shift(0, when, 0, (1, 0), ShiftEnd::Completed));
        assert_eq!(rows(&shifts), [0, 1, 1, 2, 0]);
        assert_eq!(rows(&[]), [0; 0]);
    }

    #[test]
    fn ticks_are_round_and_few_and_inside() {
        for (end_ms, tick_ms) in
            [(1, 1_000), (10_900, 1_000), (11_000, 2_000), (28_400, 5_000), (300_000, 30_000)]
        {
            let scale = Scale { end_ms };
            assert_eq!(scale.tick_ms(), tick_ms);
            let ticks: Vec<_> = scale.ticks().collect();
            assert!(ticks.len() <= 11 && ticks.iter().all(|&at| at < end_ms), "{end_ms}: {ticks:?}");
        }
    }

    #[test]
    fn everything_is_inside_the_timeline() {
        let scale = Scale { end_ms: 10_000 };
        assert_eq!(scale.span(2_500, 5_000), "left:25.000%;width:25.000%");
        assert_eq!(scale.at(20_000), "left:100.000%");
        assert_eq!(Scale { end_ms: 10_001 }.seconds(), 11);
    }

    #[test]
    fn the_list_is_in_the_order_of_time() {
        let (history, _) = fixtures::good();
        let lines = of(&history).into_iter().map(|(ms, vm, what)| format!("{} {vm} {what}", at(ms)));
        insta::assert_snapshot!(lines.collect::<Vec<_>>().join("\n"));
    }
}
