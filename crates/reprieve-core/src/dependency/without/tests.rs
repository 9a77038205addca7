use super::*;

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// So many runs that began at 0 s, of which half may do without.
fn running(runs: u64) -> Without {
    let mut without = Without::default();
    without.have_slots(usize::try_from(runs).unwrap());
    (0..runs).for_each(|run| begin(&mut without, run, &[0], s(0)));
    without
}

/// A run begins that uses these, while nothing is away. Half of the slots may do without.
fn begin(without: &mut Without, run: u64, uses: &[usize], now: Duration) {
    let most = without.slots.max(2) / 2;
    let share = Share { kind: "k", uses, away: &[], of_kind: most, in_all: most, serves: true };
    assert!(without.begin(run, &share, now));
}

/// Eight runs have done without since 1 s, and four of them ended at 30 s.
fn half_lacking() -> Without {
    let mut without = running(8);
    (0..8).for_each(|run| without.lacks(run, 0, Lacks::Called, s(1)));
    (0..4).for_each(|run| without.end(run, s(30)));
    without
}

/// A run makes a call that is answered at once.
fn answer(without: &mut Without, run: u64, used: usize, now: Duration) {
    let call = without.begin_call(run, used, now);
    without.is_served(run, used, Served::Called(call), now);
}

/// One run after the other begins, makes a call that is answered, and ends.
fn fare_well(without: &mut Without, runs: std::ops::Range<u64>, share: &Share<'_>, now: Duration) {
    for run in runs {
        assert!(without.begin(run, share, now), "{run}");
        answer(without, run, 0, now);
        without.end(run, now);
    }
}

/// A run begins, whatever may be, and makes a call that is answered at once.
fn is_answered(without: &mut Without, run: u64, used: usize, now: Duration) {
    begin(without, run, &[used], now);
    answer(without, run, used, now);
}

/// All do without from `from` to `to`, and end then; as many begin.
fn flap(without: &mut Without, from: Duration, to: Duration) {
    (0..8).for_each(|run| without.lacks(run, 0, Lacks::Called, from));
    (0..8).for_each(|run| without.end(run, to));
    (0..8).for_each(|run| begin(without, run, &[0], to));
}

#[test]
fn slots_are_kept_for_others_when_more_than_half_are_held_for_long_and_until_ten_seconds_after_that() {
    let mut without = running(8);
    (0..4).for_each(|run| without.lacks(run, 0, Lacks::Called, s(1)));
    assert!(!without.suspects(0, s(60)), "no more than may");
    without.lacks(4, 0, Lacks::Called, s(60));
    assert!(!without.suspects(0, s(61)), "a moment");
    assert!(without.suspects(0, s(62)));
    assert_eq!(without.suspected_for(0, s(70)), s(8));
    // All but one are served again: too few to go on with that.
    (1..8).for_each(|run| without.is_served(run, 0, Served::Reported, s(80)));
    assert!(without.suspects(0, s(89)));
    assert!(!without.suspects(0, s(90)));
    assert_eq!(without.suspected_for(0, s(90)), s(0));
}

#[test]
fn those_who_lack_it_for_a_moment_keep_no_slots_for_others() {
    let mut without = running(8);
    for second in 0..100 {
        (0..8).for_each(|run| without.lacks(run, 0, Lacks::Called, s(second)));
        assert!(!without.suspects(0, s(second + 1)));
        (0..4).for_each(|run| without.is_served(run, 0, Served::Reported, s(second + 1)));
        (4..8).for_each(|run| without.end(run, s(second + 1)));
        (4..8).for_each(|run| begin(&mut without, run, &[0], s(second + 1)));
    }
}

#[test]
fn slots_stay_kept_while_nothing_happens_for_long() {
    let mut without = running(2);
    (0..2).for_each(|run| without.lacks(run, 0, Lacks::Called, s(1)));
    assert!(without.suspects(0, s(3)));
    without.end(0, s(100));
    assert!(without.suspects(0, s(3_600)), "half of those that may still do without");
    without.end(1, s(3_600));
    is_answered(&mut without, 2, 0, s(3_601));
    assert!(without.suspects(0, s(3_609)));
    assert!(!without.suspects(0, s(3_610)));
}

#[test]
fn where_it_comes_and_goes_slots_are_kept_ever_longer_up_to_a_minute() {
    let mut without = running(8);
    let mut pauses = Vec::new();
    let mut now = s(0);
    for _ in 0..5 {
        flap(&mut without, now, now + s(10));
        let ended = now + s(10);
        is_answered(&mut without, 8, 0, ended);
        without.end(8, ended);
        let pause = (1..100).map(s).find(|pause| !without.suspects(0, ended + *pause)).unwrap();
        pauses.push(pause);
        now = ended + pause;
    }
    assert_eq!(pauses, [10, 20, 40, 60, 60].map(s));
    now += REMEMBERED;
    flap(&mut without, now, now + s(10));
    is_answered(&mut without, 8, 0, now + s(11));
    assert!(without.suspects(0, now + s(19)));
    assert!(!without.suspects(0, now + s(20)), "a first time again");
}

#[test]
fn a_look_at_the_state_counts_and_does_not_undo_a_call_that_failed() {
    let mut without = running(2);
    (0..2).for_each(|run| without.lacks(run, 0, Lacks::Looked, s(1)));
    without.is_served(0, 0, Served::Looked, s(2));
    assert!(!without.suspects(0, s(9)));
    without.lacks(0, 0, Lacks::Called, s(9));
    without.is_served(0, 0, Served::Looked, s(10));
    assert!(without.suspects(0, s(11)));
}

#[test]
fn a_run_that_has_not_begun_or_has_ended_counts_for_nothing() {
    let mut without = running(2);
    without.end(1, s(1));
    (0..9).for_each(|run| without.lacks(run, 0, Lacks::Called, s(1)));
    assert!(!without.suspects(0, s(9)));
}

#[test]
fn runs_that_do_without_different_ones_count_together_and_each_once() {
    let mut without = Without::default();
    without.have_slots(8);
    (0..4).for_each(|run| begin(&mut without, run, &[0], s(0)));
    (4..8).for_each(|run| begin(&mut without, run, &[1, 2], s(0)));
    (0..4).for_each(|run| without.lacks(run, 0, Lacks::Called, s(1)));
    assert!(!without.suspects(0, s(9)), "no more than may");
    without.lacks(4, 1, Lacks::Called, s(9));
    assert_eq!([0, 1].map(|used| without.suspects(used, s(11))), [true, false], "one in vain");
    without.lacks(5, 1, Lacks::Called, s(11));
    without.lacks(5, 2, Lacks::Called, s(11));
    assert_eq!([0, 1, 2].map(|used| without.suspects(used, s(13))), [true, true, true]);
    // Nobody lacks the others any more, and half may go on with the first.
    (4..6).for_each(|run| without.end(run, s(14)));
    assert_eq!([0, 1].map(|used| without.suspects(used, s(23))), [true, true]);
    assert_eq!(
        [0, 1].map(|used| without.suspects(used, s(9_000))),
        [true, true],
        "nothing has shown that it serves"
    );
    for run in 8..40 {
        let share = Share { kind: "k", uses: &[1], away: &[0, 1], of_kind: 4, in_all: 4, serves: true };
        assert!(without.begin(run, &share, s(9_000)), "{run}");
        answer(&mut without, run, 1, s(9_000));
    }
    assert_eq!([0, 1].map(|used| without.suspects(used, s(9_000))), [true, false]);
}

#[test]
fn one_more_begins_if_those_that_use_anything_that_is_away_are_fewer_than_may() {
    let mut without = Without::default();
    (0..2).for_each(|run| begin(&mut without, run, &[0], s(0)));
    (2..4).for_each(|run| begin(&mut without, run, &[0, 1], s(0)));
    (4..7).for_each(|run| begin(&mut without, run, &[2], s(0)));
    let admits = |uses: &[usize], away: &[usize], (of_kind, in_all)| {
        let share = Share { kind: "k", uses, away, of_kind, in_all, serves: false };
        without.admits(&share, s(9)) == Some(Begins::InShare)
    };
    assert!(admits(&[0], &[], (0, 0)), "nothing is away");
    assert!(admits(&[3], &[0, 1, 2], (0, 0)), "nothing that it uses is away");
    assert!(admits(&[0], &[0, 1], (8, 5)));
    assert!(!admits(&[0], &[0, 1], (8, 4)), "four use any of these");
    assert!(!admits(&[1], &[0, 1], (8, 4)), "it uses what is away, too");
    assert!(admits(&[1], &[1], (8, 3)), "two use it");
    assert!(!admits(&[1], &[0, 1, 2], (8, 7)));
    assert!(!admits(&[1], &[1], (7, 3)), "seven of its kind run");
}

#[test]
fn a_call_that_is_given_up_counts_unless_another_was_answered_meanwhile() {
    let mut without = running(2);
    let [first, second, third] = [0, 1, 1].map(|run| without.begin_call(run, 0, s(1)));
    without.gives_up(0, 0, first, s(1));
    without.is_served(1, 0, Served::Called(third), s(1));
    without.gives_up(1, 0, second, s(1));
    assert!(!without.suspects(0, s(3)), "the second answer was not waited for");
    let fourth = without.begin_call(1, 0, s(3));
    without.gives_up(1, 0, fourth, s(3));
    assert!(without.suspects(0, s(5)));
}

#[test]
fn a_call_that_hangs_and_fails_counts_from_its_beginning_on() {
    let mut without = running(2);
    let calls = [0, 1].map(|run| without.begin_call(run, 0, s(1)));
    without.fails(0, 0, calls[0], s(21));
    assert!(!without.suspects(0, s(21)), "the other may be answered");
    without.fails(1, 0, calls[1], s(21));
    assert!(without.suspects(0, s(21)));
}

#[test]
fn a_call_that_fails_after_hours_does_not_begin_again_what_ended_long_ago() {
    let mut without = running(4);
    let call = without.begin_call(3, 0, s(0));
    (0..3).for_each(|run| without.lacks(run, 0, Lacks::Called, s(1)));
    assert!(without.suspects(0, s(3)));
    (0..3).for_each(|run| without.end(run, s(4)));
    is_answered(&mut without, 4, 0, s(4));
    assert!(!without.suspects(0, s(14)));
    without.fails(3, 0, call, s(9_000));
    assert!(!without.suspects(0, s(9_000)));
}

#[test]
fn those_that_wait_for_an_answer_count_where_three_have_waited_in_vain_and_until_one_is_answered() {
    let mut without = running(8);
    for run in 0..3 {
        let call = without.begin_call(run, 0, s(0));
        without.fails(run, 0, call, s(20));
        without.end(run, s(20));
    }
    let calls: Vec<_> = (3..8).map(|run| without.begin_call(run, 0, s(20))).collect();
    assert!(!without.suspects(0, s(21)));
    assert!(without.suspects(0, s(22)));
    // An answer: the others may have one, too.
    without.is_served(3, 0, Served::Called(calls[0]), s(30));
    assert!(without.suspects(0, s(39)));
    assert!(!without.suspects(0, s(40)));
    // One that fails after it is the first in a row.
    without.fails(4, 0, calls[1], s(50));
    assert!(!without.suspects(0, s(100)));
}

/// One more begins while four of so many may do without what is kept from them.
const FOUR: Share<'_> = Share { kind: "k", uses: &[0], away: &[0], of_kind: 4, in_all: 4, serves: true };

fn tries(without: &mut Without, run: u64, serves: bool, now: Duration) -> bool {
    without.begin(run, &Share { serves, ..FOUR }, now)
}

#[test]
fn one_by_one_more_are_tried_when_nothing_was_lacked_for_a_minute() {
    let mut without = running(8);
    (0..8).for_each(|run| without.lacks(run, 0, Lacks::Called, s(1)));
    without.end(0, s(30));
    assert!(!tries(&mut without, 8, true, s(61)), "seven do without, and it might be the eighth");
    without.end(1, s(61));
    assert!(!tries(&mut without, 8, true, s(60)), "too early");
    assert!(!tries(&mut without, 8, false, s(61)), "a breaker is not closed");
    assert!(tries(&mut without, 8, true, s(61)));
    assert!(!tries(&mut without, 9, true, s(120)), "it has called nothing yet");
    answer(&mut without, 8, 0, s(120));
    assert!(tries(&mut without, 9, true, s(120)));
    without.end(2, s(120));
    without.end(3, s(120));
    assert!(tries(&mut without, 10, true, s(121)), "two at once, after one that fared well");
    assert!(!tries(&mut without, 11, true, s(179)));
    assert!(tries(&mut without, 11, true, s(180)), "no call in a minute");
    assert!(without.suspects(0, s(180)));
}

#[test]
fn when_enough_that_were_tried_fared_well_nothing_is_kept_though_many_still_do_without() {
    let mut without = half_lacking();
    // Jobs of 30 s that call nothing: those that end show as much as an answer.
    let (mut run, mut now, mut rounds) = (8, s(61), Vec::new());
    while without.suspects(0, now) {
        let first = run;
        while tries(&mut without, run, true, now) {
            run += 1;
        }
        rounds.push(run - first);
        now += s(30);
        (first..run).for_each(|run| without.end(run, now));
    }
    assert_eq!(rounds[..3], [1, 2, 3], "all but one slot, which might be the last");
    assert_eq!(rounds.iter().sum::<u64>(), 33);
}

#[test]
fn a_lack_of_one_that_is_tried_undoes_what_others_have_shown() {
    let mut without = half_lacking();
    fare_well(&mut without, 8..39, &FOUR, s(61));
    assert!(tries(&mut without, 39, true, s(61)));
    without.lacks(39, 0, Lacks::Called, s(62));
    without.end(39, s(70));
    assert!(!tries(&mut without, 40, true, s(121)));
    assert!(tries(&mut without, 40, true, s(122)));
    assert!(!tries(&mut without, 41, true, s(122)), "one at a time again");
}

#[test]
fn the_answer_to_a_call_that_was_refused_shows_nothing() {
    // Told within the call, and after its answer, as a client does that looks at it.
    for refuses_first in [true, false] {
        let mut without = running(8);
        (0..8).for_each(|run| without.lacks(run, 0, Lacks::Refused, s(1)));
        (0..8).for_each(|run| without.end(run, s(4)));
        for (run, now) in [(8, s(20)), (9, s(40)), (10, s(60))] {
            assert!(tries(&mut without, run, true, now));
            let call = without.begin_call(run, 0, now);
            if refuses_first {
                without.lacks(run, 0, Lacks::Refused, now);
            }
            without.is_served(run, 0, Served::Called(call), now + s(1));
            without.lacks(run, 0, Lacks::Refused, now + s(1));
            without.end(run, now + s(15));
            assert!(without.suspects(0, now + s(15)), "{run}, {refuses_first}");
        }
    }
}

#[test]
fn a_job_that_has_not_called_yet_shows_nothing_until_it_ends() {
    let mut without = running(8);
    (0..8).for_each(|run| without.lacks(run, 0, Lacks::Called, s(1)));
    (0..8).for_each(|run| without.end(run, s(4)));
    assert!(tries(&mut without, 8, true, s(5)));
    assert!(without.suspects(0, s(3_600)));
    without.end(8, s(3_601));
    assert!(!without.suspects(0, s(3_603)));
}

#[test]
fn one_that_was_tried_before_or_for_another_dependency_keeps_none_from_being_tried() {
    let mut without = half_lacking();
    assert!(tries(&mut without, 8, true, s(61)));
    answer(&mut without, 8, 0, s(61));
    (4..8).for_each(|run| without.end(run, s(62)));
    assert!(!without.suspects(0, s(72)));
    // The next time, that one does without, too.
    (9..15).for_each(|run| begin(&mut without, run, &[0], s(100)));
    (8..15).for_each(|run| without.lacks(run, 0, Lacks::Called, s(101)));
    (9..12).for_each(|run| without.end(run, s(104)));
    assert!(tries(&mut without, 15, true, s(161)));
    // Another dependency: one that was tried for the first does without that.
    without.lacks(15, 0, Lacks::Called, s(162));
    without.end(12, s(163));
    let share = Share { kind: "o", uses: &[1], away: &[0, 1], of_kind: 4, in_all: 4, serves: true };
    assert!(without.begin(16, &share, s(164)));
}

#[test]
fn those_that_do_without_when_enough_fared_well_count_again_only_if_they_do_so_again() {
    let mut without = running(32);
    (0..32).for_each(|run| without.lacks(run, 0, Lacks::Called, s(1)));
    (0..14).for_each(|run| without.end(run, s(4)));
    let share = Share { kind: "k", uses: &[0], away: &[0], of_kind: 16, in_all: 16, serves: true };
    fare_well(&mut without, 32..64, &share, s(61));
    assert!(!without.suspects(0, s(62)), "18 run on");
    assert!(!without.suspects(0, s(9_000)));
    (14..32).for_each(|run| without.lacks(run, 0, Lacks::Called, s(9_000)));
    assert!(without.suspects(0, s(9_002)));
}

#[test]
fn those_that_were_forgiven_and_those_that_do_without_later_leave_others_a_slot() {
    for later in [13, 14] {
        let mut without = running(32);
        (0..32).for_each(|run| without.lacks(run, 0, Lacks::Called, s(1)));
        (0..14).for_each(|run| without.end(run, s(4)));
        for run in 32..64 {
            is_answered(&mut without, run, 0, s(61));
            without.end(run, s(61));
        }
        assert!(!without.suspects(0, s(62)), "18 are forgiven, and run on");
        (0..later).for_each(|run| begin(&mut without, 64 + run, &[0], s(9_000)));
        (0..later).for_each(|run| without.lacks(64 + run, 0, Lacks::Called, s(9_000)));
        assert_eq!(without.suspects(0, s(9_002)), later == 14, "{later}");
    }
}

#[test]
fn one_call_in_vain_keeps_no_slot_empty_beside_jobs_that_were_forgiven() {
    let mut without = running(2);
    (0..2).for_each(|run| without.lacks(run, 0, Lacks::Called, s(1)));
    without.end(1, s(3));
    let share = Share { kind: "k", uses: &[0], away: &[0], of_kind: 1, in_all: 1, serves: true };
    fare_well(&mut without, 2..34, &share, s(10_000));
    assert!(!without.suspects(0, s(10_001)), "one is forgiven, and runs on");
    for (run, is_served) in [(34, true), (36, true), (38, false)] {
        let now = s(20_000 + 1_000 * run);
        begin(&mut without, run, &[0], now);
        without.lacks(run, 0, Lacks::Called, now);
        assert!(!without.suspects(0, now + s(60)));
        without.end(run, now + s(60));
        if is_served {
            is_answered(&mut without, run + 1, 0, now + s(61));
            without.end(run + 1, now + s(61));
        }
    }
    // Long after the last one.
    begin(&mut without, 40, &[0], s(70_000));
    without.lacks(40, 0, Lacks::Called, s(70_000));
    assert!(!without.suspects(0, s(70_002)));
    without.end(40, s(70_010));
    begin(&mut without, 41, &[0], s(71_000));
    without.lacks(41, 0, Lacks::Called, s(71_000));
    assert!(without.suspects(0, s(71_002)), "the second in a row");
}

#[test]
fn those_that_were_forgiven_and_those_that_do_without_another_leave_others_a_slot() {
    let mut without = half_lacking();
    fare_well(&mut without, 8..40, &FOUR, s(61));
    assert!(!without.suspects(0, s(62)), "four are forgiven, and run on");
    let share = Share { kind: "o", uses: &[1], away: &[1], of_kind: 4, in_all: 4, serves: false };
    let begun = (40..50).filter(|run| without.begin(*run, &share, s(9_000))).count();
    assert_eq!(begun, 3);
    without.end(4, s(9_000));
    assert!(without.begin(50, &share, s(9_000)));
    assert!(!without.begin(51, &share, s(9_000)), "half of the slots");
}

#[test]
fn those_that_begin_in_their_share_show_as_much_as_those_that_are_tried() {
    let mut without = half_lacking();
    (4..6).for_each(|run| without.end(run, s(31)));
    (8..11).for_each(|run| assert!(tries(&mut without, run, true, s(61)), "{run}"));
    without.lacks(10, 0, Lacks::Called, s(61));
    (8..10).for_each(|run| without.end(run, s(61)));
    // The one that was tried does without for hours. Nothing shows that it serves before a minute without a lack.
    fare_well(&mut without, 100..140, &FOUR, s(119));
    for run in 11..43 {
        assert!(without.suspects(0, s(200)), "{run}");
        fare_well(&mut without, run..run + 1, &FOUR, s(200));
    }
    assert!(!without.suspects(0, s(201)));
}

#[test]
fn one_that_waits_for_an_answer_is_in_doubt_for_as_long() {
    let mut without = half_lacking();
    assert!(tries(&mut without, 8, true, s(61)));
    let _call = without.begin_call(8, 0, s(61));
    assert!(!tries(&mut without, 9, true, s(3_000)));
}

#[test]
fn a_job_that_fails_again_and_again_by_a_fault_of_its_own_keeps_no_other_from_being_tried() {
    let mut without = half_lacking();
    (40..70).for_each(|second| without.lacks(4, 0, Lacks::Called, s(second)));
    assert!(tries(&mut without, 8, true, s(70)));
}

#[test]
fn an_earlier_call_that_fails_after_a_later_one_was_answered_counts_from_its_failure_on() {
    let mut without = running(2);
    let calls = [0, 1, 0, 1].map(|run| without.begin_call(run, 0, s(1)));
    (0..2).zip(&calls[2..]).for_each(|(run, call)| without.is_served(run, 0, Served::Called(*call), s(2)));
    (0..2).zip(&calls[..2]).for_each(|(run, call)| without.fails(run, 0, *call, s(20)));
    assert!(!without.suspects(0, s(21)));
    assert!(without.suspects(0, s(22)));
}

#[test]
fn each_kind_is_judged_by_what_it_may() {
    let mut without = Without::default();
    without.have_slots(8);
    let begin = |without: &mut Without, run, kind, used: usize, (of_kind, in_all)| {
        let share = Share { kind, uses: &[used], away: &[], of_kind, in_all, serves: true };
        assert!(without.begin(run, &share, s(0)));
        without.lacks(run, used, Lacks::Called, s(1));
    };
    // One that may have all slots.
    (0..5).for_each(|run| begin(&mut without, run, "all", 0, (8, 8)));
    assert!(!without.suspects(0, s(9)));
    (0..5).for_each(|run| without.end(run, s(9)));
    // One that may have one of them.
    begin(&mut without, 5, "one", 1, (1, 4));
    assert!(!without.suspects(1, s(19)));
    begin(&mut without, 6, "one", 1, (1, 4));
    assert!(without.suspects(1, s(29)));
    (5..7).for_each(|run| without.end(run, s(29)));
    // One that may have half, whatever others may.
    (7..12).for_each(|run| begin(&mut without, run, "half", 2, (4, 4)));
    assert!(without.suspects(2, s(39)));
}

#[test]
fn while_one_that_is_tried_does_without_no_other_is() {
    let mut without = running(8);
    (0..8).for_each(|run| without.lacks(run, 0, Lacks::Called, s(1)));
    (0..3).for_each(|run| without.end(run, s(100)));
    assert!(tries(&mut without, 8, true, s(100)));
    let call = without.begin_call(8, 0, s(100));
    without.fails(8, 0, call, s(100));
    assert!(!tries(&mut without, 9, true, s(3_000)));
    without.end(8, s(3_000));
    assert!(tries(&mut without, 9, true, s(3_000)));
}

#[test]
fn one_with_which_all_slots_might_do_without_is_tried_after_an_hour() {
    let mut without = running(2);
    (0..2).for_each(|run| without.lacks(run, 0, Lacks::Called, s(1)));
    without.end(0, s(60));
    let share = Share { kind: "k", uses: &[0], away: &[0], of_kind: 1, in_all: 1, serves: true };
    assert!(!without.begin(2, &share, s(3_600)));
    assert!(without.begin(2, &share, s(3_601)));
}

#[test]
fn a_call_that_was_refused_counts_until_one_that_began_later_is_answered() {
    let mut without = running(2);
    without.lacks(0, 0, Lacks::Called, s(1));
    let number = without.begin_call(1, 0, s(1));
    without.lacks(1, 0, Lacks::Refused, s(1));
    // It is the answer that refuses it, and one that came beside it tells nothing.
    without.is_served(1, 0, Served::Called(number), s(1));
    without.is_served(1, 0, Served::Reported, s(1));
    assert!(without.suspects(0, s(3)));
    answer(&mut without, 1, 0, s(3));
    without.end(0, s(3));
    assert!(!without.suspects(0, s(13)));
}

/// Each works for ten minutes, is refused, and takes the slower way for half an hour.
#[test]
fn jobs_that_find_out_late_are_on_trial_for_as_long() {
    for slots in [4, 8, 64] {
        let mut without = Without::default();
        without.have_slots(slots);
        let share =
            Share { kind: "k", uses: &[0], away: &[0], of_kind: slots / 2, in_all: slots / 2, serves: true };
        let (mut run, mut began, mut most) = (0, Vec::new(), 0);
        for now in 0..8 * 3_600 {
            began.retain(|(run, began)| {
                if began + 600 == now {
                    let call = without.begin_call(*run, 0, s(now));
                    without.lacks(*run, 0, Lacks::Refused, s(now));
                    without.is_served(*run, 0, Served::Called(call), s(now));
                } else if began + 2_400 == now {
                    without.end(*run, s(now));
                }
                began + 2_400 > now
            });
            let away: &[_] = if without.suspects(0, s(now)) { &[0] } else { &[] };
            while began.len() < slots && without.begin(run, &Share { away, ..share }, s(now)) {
                began.push((run, now));
                run += 1;
            }
            if now > 2 * 3_600 {
                most = most.max(began.iter().filter(|(_, began)| began + 600 <= now).count());
            }
        }
        assert_eq!(most, slots / 2 + 1);
    }
}

#[test]
fn a_kind_over_its_own_limit_keeps_no_kind_that_lacks_something_else_from_its_slots() {
    let mut without = Without::default();
    without.have_slots(64);
    let one = Share { kind: "one", uses: &[0], away: &[], of_kind: 32, in_all: 32, serves: true };
    let other = Share { kind: "other", uses: &[1], of_kind: 1, ..one };
    for run in 0..7 {
        assert!(without.begin(run, &one, s(0)));
        without.lacks(run, 0, Lacks::Called, s(1));
    }
    for run in 7..9 {
        assert!(without.begin(run, &other, s(0)));
        without.lacks(run, 1, Lacks::Called, s(1));
    }
    assert!(without.suspects(1, s(4)));
    assert!(!without.suspects(0, s(4)));
    // It ends as soon for the one, whatever the other lacks.
    (20..60).for_each(|run| assert!(without.begin(run, &one, s(5)), "{run}"));
    (20..50).for_each(|run| without.lacks(run, 0, Lacks::Called, s(6)));
    assert!(without.suspects(0, s(9)));
    (20..50).chain(0..7).for_each(|run| without.end(run, s(20)));
    answer(&mut without, 50, 0, s(21));
    assert!(without.suspects(0, s(29)));
    assert!(!without.suspects(0, s(32)));
    assert!(without.suspects(1, s(32)));
}

#[test]
fn what_was_refused_before_any_call_is_not_served_by_a_report() {
    let mut without = running(8);
    for run in 0..8 {
        without.lacks(run, 0, Lacks::Refused, s(1));
        without.is_served(run, 0, Served::Reported, s(1));
    }
    assert!(without.suspects(0, s(4)));
}

#[test]
fn an_hour_without_a_lack_does_not_tell_when_jobs_find_out() {
    let mut without = running(4);
    without.lacks(0, 0, Lacks::Called, s(600));
    without.lacks(1, 0, Lacks::Called, s(5_000));
    assert_eq!(without.in_row[&0].lacks, 1);
    assert_eq!(without.in_row[&0].first_call, s(5_000));
    // It ran for hours, did without before, and does so again.
    without.is_served(1, 0, Served::Looked, s(5_001));
    without.runs.get_mut(&1).unwrap().uses.get_mut(&0).unwrap().lack.as_mut().unwrap().is_over = true;
    without.lacks(1, 0, Lacks::Called, s(9_000));
    assert_eq!(without.in_row[&0].first_call, s(5_000));
}

#[test]
fn while_jobs_do_without_answers_to_others_do_not_hide_that_they_call_late() {
    let mut without = Without::default();
    without.have_slots(8);
    // The first one reads all the time, and is answered; others write after ten minutes, and are refused.
    (0..5).for_each(|run| begin(&mut without, run, &[0], s(0)));
    (1..5).for_each(|run| without.lacks(run, 0, Lacks::Refused, s(600)));
    answer(&mut without, 0, 0, s(601));
    (5..8).for_each(|run| begin(&mut without, run, &[0], s(1_200)));
    (5..8).for_each(|run| without.lacks(run, 0, Lacks::Refused, s(1_800)));
    answer(&mut without, 0, 0, s(1_801));
    assert!(without.suspects(0, s(1_802)));
    answer(&mut without, 0, 0, s(1_803));
    (1..5).for_each(|run| without.end(run, s(2_400)));
    let share = Share { kind: "k", uses: &[0], away: &[0], of_kind: 4, in_all: 4, serves: true };
    assert!(without.begin(8, &share, s(2_400)));
    assert!(!without.begin(9, &share, s(2_999)));
    assert!(without.begin(9, &share, s(3_000)));
}

#[test]
fn a_run_whose_step_was_dropped_counts_until_its_slot_is_free_and_its_calls_tell_nothing() {
    let mut without = running(4);
    let share = Share { kind: "k", uses: &[0], away: &[0], of_kind: 2, in_all: 2, serves: true };
    (0..2).for_each(|run| without.end(run, s(0)));
    let call = without.begin_call(2, 0, s(1));
    (2..4).for_each(|run| without.drop_step(run, s(1)));
    without.gives_up(2, 0, call, s(9));
    without.lacks(3, 0, Lacks::Called, s(9));
    assert!(!without.suspects(0, s(20)));
    assert_eq!(without.admits(&share, s(20)), Some(Begins::OnTrial), "two hold their slots");
    without.end(3, s(20));
    assert_eq!(without.admits(&share, s(20)), Some(Begins::InShare));
}

#[test]
fn one_slot_is_not_kept_for_others() {
    let mut without = running(1);
    for (run, at) in [(0, s(0)), (1, s(60)), (2, s(120))] {
        if run > 0 {
            begin(&mut without, run, &[0], at);
        }
        without.lacks(run, 0, Lacks::Called, at);
        assert!(!without.suspects(0, at + s(30)), "{run}");
        without.end(run, at + s(40));
    }
    assert_eq!(without.take_news(), []);
}

#[test]
fn nothing_is_limited_where_all_slots_may_do_without() {
    for (slots, most) in [(2, 2), (8, 8), (2, 100)] {
        let mut without = Without::default();
        without.have_slots(slots);
        let share = |kind, most| Share {
            kind,
            uses: &[0],
            away: &[],
            of_kind: most,
            in_all: most.max(slots.div_ceil(2)),
            serves: true,
        };
        for run in 0..slots as u64 {
            assert!(without.begin(run, &share("k", most), s(0)));
            without.lacks(run, 0, Lacks::Called, s(1));
        }
        assert!(!without.suspects(0, s(600)), "{most} of {slots}");
        // One of a kind of which fewer may do without holds the slots of others as well.
        without.end(0, s(600));
        assert!(without.begin(100, &share("other", 1), s(600)));
        without.lacks(100, 0, Lacks::Called, s(600));
        assert!(without.suspects(0, s(602)), "{most} of {slots}");
    }
}

#[test]
fn others_hear_once_that_it_is_suspected_and_once_that_this_is_over() {
    let mut without = running(8);
    (0..5).for_each(|run| without.lacks(run, 0, Lacks::Called, s(1)));
    assert!(without.suspects(0, s(3)) && without.suspects(0, s(4)));
    assert_eq!((without.take_news(), without.take_news()), (vec![News::Suspected(0)], vec![]));
    (0..8).for_each(|run| without.is_served(run, 0, Served::Reported, s(6)));
    assert!(!without.suspects(0, s(60)) && !without.suspects(0, s(61)));
    assert_eq!(without.take_news(), vec![News::Over(0)]);
}
