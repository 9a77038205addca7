//! Processes that share a directory, on a clock that jumps ahead while all wait.

use std::cell::Cell;
use std::path::Path;

use futures_util::future::join_all;
use reprieve_core::clock::{simulate, wall_now};
use reprieve_core::{Error, ErrorKind};
use tempfile::TempDir;
use tokio::time::{sleep, sleep_until};

use super::super::LOOK_EVERY;
use super::super::trials::TRY_AFTER;
use super::*;
use crate::scheduled_events::client::failure::{Failure, FailureKind};
use crate::scheduled_events::client::http::Body;

const VERSION: ApiVersion = ApiVersion::DOCUMENTED;

struct Vm {
    directory: TempDir,
}

impl Vm {
    fn new() -> Self {
        simulate(wall_now());
        Self { directory: tempfile::tempdir().expect("a directory") }
    }

    fn process(&self) -> SharedPolls {
        self.pinned(None)
    }

    fn processes(&self, number: u32) -> Vec<SharedPolls> {
        (0..number).map(|_| self.process()).collect()
    }

    fn pinned(&self, version: Option<ApiVersion>) -> SharedPolls {
        SharedPolls::new(Arc::new(SharedDirectory::new(&self.path(), "http://127.0.0.1/")), version)
    }

    /// A directory that can be removed.
    fn path(&self) -> PathBuf {
        self.directory.path().join("state")
    }
}

fn body(text: &str) -> Body {
    let ahead = Some(jiff::SignedDuration::from_millis(1_500));
    Body { bytes: text.as_bytes().to_vec(), ahead }
}

fn refused(kind: FailureKind, status: Option<u16>) -> Answered {
    let error = Error::new(ErrorKind::Unavailable, "read the scheduled events", "too many requests");
    Err(Failure { kind, status, retry_after: None, error })
}

impl SharedPolls {
    fn heard(&mut self) {
        self.trials.heard(Instant::now());
    }

    fn answered_otherwise(&mut self) {
        self.trials.answered_otherwise(Instant::now());
    }
}

/// The texts of what others got.
fn texts(of: &mut SharedPolls) -> Vec<String> {
    let read = |news: News| String::from_utf8(news.answered.expect("an answer").bytes).expect("text");
    of.news().into_iter().map(read).collect()
}

/// Polls once, and gets `text`.
fn poll(of: &mut SharedPolls, text: &str) {
    assert!(of.look(), "it polls");
    of.write(PollResult::of(VERSION, Instant::now(), &Ok(body(text))));
}

/// Looks at once and every tenth of a second, polls each second if it is to, and takes what others got, for as
/// many seconds. Returns the longest time without an answer.
async fn work(of: &mut SharedPolls, seconds: u64, polls: &Cell<u64>) -> Duration {
    let (end, mut next) = (Instant::now() + Duration::from_secs(seconds), Instant::now());
    let (mut last, mut longest) = (Instant::now(), Duration::ZERO);
    while Instant::now() < end {
        let mut has_news = of.look() && Instant::now() >= next;
        if has_news {
            polls.set(polls.get() + 1);
            next = Instant::now() + Duration::from_secs(1);
            let sent = Instant::now();
            sleep(Duration::from_millis(5)).await;
            of.write(PollResult::of(VERSION, sent, &Ok(body("polled"))));
        }
        has_news |= !of.news().is_empty();
        if has_news {
            of.heard();
            longest = longest.max(last.elapsed());
            last = Instant::now();
        }
        sleep(LOOK_EVERY).await;
    }
    longest.max(last.elapsed())
}

/// All of them work. Returns the number of polls, and the longest time that one was without an answer.
async fn polls(of: &mut [SharedPolls], seconds: u64) -> (u64, Duration) {
    let polls = Cell::new(0);
    let begin = Instant::now();
    let all = (0..).zip(of).map(async |(index, it)| {
        sleep_until(begin + Duration::from_millis(13 * index)).await;
        work(it, seconds, &polls).await
    });
    let longest = join_all(all).await.into_iter().max().expect("a process");
    (polls.get(), longest)
}

/// The longest time without an answer while all is well: the interval of the polls and two looks.
const STEADY: Duration = Duration::from_millis(1_300);

/// The same where the one that polls is stopped meanwhile.
const TAKEN_OVER: Duration = Duration::from_millis(2_600);

#[tokio::test(start_paused = true)]
async fn one_process_polls_and_the_others_read_what_it_gets_until_it_ends() {
    let vm = Vm::new();
    let (mut first, mut second) = (vm.process(), vm.process());
    poll(&mut first, "a");
    assert!(!second.look());
    assert_eq!(texts(&mut second), ["a"]);
    assert_eq!(texts(&mut second), [""; 0], "each once");
    poll(&mut first, "b");
    assert_eq!(texts(&mut second), ["b"]);
    assert_eq!(texts(&mut first), [""; 0]);
    drop(first);
    assert!(second.look());
}

#[tokio::test(start_paused = true)]
async fn processes_that_start_together_poll_as_often_as_one() {
    let vm = Vm::new();
    let (sent, longest) = polls(&mut vm.processes(8), 20).await;
    assert!((20..=21).contains(&sent), "{sent} polls in 20 s");
    assert!(longest < STEADY, "{longest:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_read_in_one_version_is_news_whatever_the_others_got() {
    let vm = Vm::new();
    let (mut first, mut second) = (vm.process(), vm.process());
    poll(&mut first, "a");
    assert_eq!(texts(&mut second), ["a"]);
    first.write(PollResult::of(ApiVersion::NEWEST, Instant::now(), &Ok(body("newest"))));
    first.write(PollResult::of(
        ApiVersion::V2017_11_01,
        Instant::now(),
        &refused(FailureKind::of_status(429), Some(429)),
    ));
    let news = second.news();
    assert_eq!(
        news.iter().map(|news| news.version).collect::<Vec<_>>(),
        [ApiVersion::V2017_11_01, ApiVersion::NEWEST]
    );
    assert_eq!(vm.process().news().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_news_also_if_the_next_poll_has_failed_when_another_process_looks() {
    let vm = Vm::new();
    let (mut first, mut second) = (vm.process(), vm.process());
    poll(&mut first, "a");
    assert_eq!(texts(&mut second), ["a"]);
    sleep(Duration::from_millis(10)).await;
    first.write(PollResult::of(VERSION, Instant::now(), &Ok(body("Preempt"))));
    sleep(Duration::from_millis(10)).await;
    first.write(PollResult::of(VERSION, Instant::now(), &refused(FailureKind::of_status(429), Some(429))));
    let news = second.news();
    assert!(matches!(&news[..], [News { answered: Ok(_), .. }, News { answered: Err(_), .. }]), "{news:?}");
}

#[tokio::test(start_paused = true)]
async fn refusals_and_the_lack_of_an_answer_are_shared() {
    let vm = Vm::new();
    let (mut first, mut second) = (vm.process(), vm.process());
    poll(&mut first, "a");
    assert_eq!(texts(&mut second), ["a"]);
    for (kind, status) in [(FailureKind::Throttled, Some(429)), (FailureKind::TimedOut, None)] {
        sleep(Duration::from_millis(50)).await;
        first.write(PollResult::of(VERSION, Instant::now(), &refused(kind, status)));
        let news = second.news().pop().expect("news");
        let failure = news.answered.expect_err("a failure");
        assert_eq!((failure.kind, failure.status), (kind, status));
        assert!(failure.passes() && failure.error.to_string().contains("too many requests"));
    }
}

#[tokio::test(start_paused = true)]
async fn one_other_process_polls_while_the_first_is_stopped_and_until_it_goes_on() {
    let vm = Vm::new();
    let mut stopped = vm.process();
    poll(&mut stopped, "a");
    let mut others = vm.processes(7);
    let (sent, longest) = polls(&mut others, 20).await;
    assert!((18..=20).contains(&sent), "{sent} polls in 20 s");
    assert!(longest < TAKEN_OVER, "{longest:?}");
    let (before, after) = (Cell::new(0), Cell::new(0));
    let others = others.iter_mut().map(|other| work(other, 10, &after));
    tokio::join!(work(&mut stopped, 10, &before), join_all(others));
    assert_eq!(before.get(), 10);
    assert!(after.get() <= 1, "{} polls of the others", after.get());
}

#[tokio::test(start_paused = true)]
async fn the_next_process_polls_when_the_second_is_stopped_too() {
    let vm = Vm::new();
    let mut stopped = vm.processes(3);
    for process in &mut stopped {
        let began = Instant::now();
        while !process.look() {
            assert!(began.elapsed() < 2 * SILENT_AFTER);
            sleep(LOOK_EVERY).await;
        }
    }
    let (sent, longest) = polls(&mut vm.processes(6), 20).await;
    assert!((17..=20).contains(&sent), "{sent} polls in 20 s");
    assert!(longest < TAKEN_OVER + RANK_LATER * 2, "{longest:?}");
}

#[tokio::test(start_paused = true)]
async fn each_polls_by_itself_while_all_that_hold_a_lock_are_stopped() {
    let vm = Vm::new();
    let mut stopped = vm.processes(u32::from(RANKS));
    for process in &mut stopped {
        while !process.look() {
            sleep(LOOK_EVERY).await;
        }
    }
    let mut other = vm.process();
    let (sent, _) = polls(std::slice::from_mut(&mut other), 10).await;
    assert!((5..=6).contains(&sent), "{sent} polls in 10 s");
    // One of the stopped goes on.
    let (sent, longest) = polls(&mut [stopped.remove(0), other], 10).await;
    assert!(
        (9..=12).contains(&sent) && longest < STEADY,
        "one of the two polls: {sent} in 10 s, {longest:?}"
    );
}

const NOTHING_YET: &str = r#"{"DocumentIncarnation":1,"Events":[]}"#;

/// Looks, polls if it is to, and tries if it is to, with what `answer` says of it.
fn act(of: &mut SharedPolls, answer: &dyn Fn() -> Answered, trials: &Cell<u32>) -> bool {
    let polls = of.look();
    let hears = |of: &mut SharedPolls, answered: &Answered| match answered {
        Ok(body) if body.bytes == NOTHING_YET.as_bytes() => of.heard(),
        Err(failure) if failure.kind == FailureKind::Throttled => of.answered_otherwise(),
        _ => {}
    };
    for news in of.news() {
        hears(of, &news.answered);
    }
    if polls {
        let answered = answer();
        hears(of, &answered);
        of.write(PollResult::of(VERSION, Instant::now(), &answered));
    } else if of.begins_trial(|_| VERSION).is_some() {
        trials.set(trials.get() + 1);
        let (sent, answered) = (Instant::now(), answer());
        of.write(PollResult::of(VERSION, sent, &answered));
        hears(of, &answered);
    }
    polls
}

#[tokio::test(start_paused = true)]
async fn the_same_process_polls_while_the_service_answers_nobody_and_the_others_try_rarely() {
    for (kind, status) in [
        (FailureKind::Server, Some(503)),
        (FailureKind::TimedOut, None),
        (FailureKind::Unreachable, None),
        (FailureKind::Throttled, Some(429)),
    ] {
        let vm = Vm::new();
        let (mut processes, trials) = (vm.processes(16), Cell::new(0));
        let mut polled = std::collections::BTreeSet::new();
        for _ in 0..600 {
            for (index, process) in processes.iter_mut().enumerate() {
                if act(process, &|| refused(kind, status), &trials) {
                    polled.insert(index);
                }
            }
            sleep(LOOK_EVERY).await;
        }
        assert_eq!(polled.len(), 1, "{kind:?}: {polled:?}");
        let at_most = if kind == FailureKind::Throttled { 11 } else { 60 };
        assert!(trials.get() <= at_most, "{kind:?}: {} in a minute", trials.get());
    }
}

#[tokio::test(start_paused = true)]
async fn a_process_that_alone_gets_no_answers_leaves_the_polls_to_one_that_does() {
    let cases: [&dyn Fn() -> Answered; 4] = [
        &|| refused(FailureKind::Unreachable, None),
        &|| refused(FailureKind::TimedOut, None),
        &|| refused(FailureKind::Refused, Some(403)),
        &|| refused(FailureKind::Garbage, None),
    ];
    for cut_off in cases {
        let vm = Vm::new();
        let (mut processes, trials) = (vm.processes(5), Cell::new(0));
        assert!(processes[0].look(), "it polls");
        let began = Instant::now();
        let (mut heard, mut last_polled_by_first) = (None, began);
        while began.elapsed() < Duration::from_secs(60) {
            for (index, process) in processes.iter_mut().enumerate() {
                let answer: &dyn Fn() -> Answered =
                    if index == 0 { cut_off } else { &|| Ok(body(NOTHING_YET)) };
                let polls = act(process, answer, &trials);
                if polls && index == 0 {
                    last_polled_by_first = Instant::now();
                } else if polls {
                    heard.get_or_insert(began.elapsed());
                }
            }
            sleep(LOOK_EVERY).await;
        }
        let (after, until) = (heard.expect("another one polls"), last_polled_by_first - began);
        assert!(after <= Duration::from_millis(2_500), "{after:?}");
        assert!(until <= Duration::from_millis(2_500), "the first one goes on until {until:?}");
        assert_eq!(trials.get(), 1);
        // The one that polls now may be cut off in its turn: no trial that is over keeps the others from theirs.
        let polling = (1..5).find(|index| processes[*index].lock.is_some()).expect("one of them polls");
        let began = Instant::now();
        let mut heard = None;
        while began.elapsed() < Duration::from_secs(60) {
            for (index, process) in processes.iter_mut().enumerate() {
                let answer: &dyn Fn() -> Answered =
                    if index == polling { cut_off } else { &|| Ok(body(NOTHING_YET)) };
                if act(process, answer, &trials) && index != polling {
                    heard.get_or_insert(began.elapsed());
                }
            }
            sleep(LOOK_EVERY).await;
        }
        assert!(heard.is_some_and(|after| after <= Duration::from_millis(2_500)), "{heard:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_gives_the_polls_to_the_process_that_made_it() {
    for _ in 0..20 {
        let vm = Vm::new();
        let (mut processes, trials) = (vm.processes(5), Cell::new(0));
        assert!(processes[0].look(), "it polls");
        let claimant = loop {
            let mut claimant = None;
            for (index, process) in processes.iter_mut().enumerate().skip(1) {
                let before = trials.get();
                act(process, &|| Ok(body(NOTHING_YET)), &trials);
                claimant = claimant.or((trials.get() > before).then_some(index));
            }
            if let Some(claimant) = claimant {
                break claimant;
            }
            act(&mut processes[0], &|| refused(FailureKind::TimedOut, None), &trials);
            sleep(LOOK_EVERY).await;
        };
        for _ in 0..3 {
            for process in &mut processes {
                process.look();
            }
            sleep(LOOK_EVERY).await;
        }
        let holders: Vec<_> = (0..5).filter(|index| processes[*index].lock.is_some()).collect();
        assert_eq!(holders, [claimant]);
    }
}

/// Processes with requests under way. What is answered, and after what time, depends on the process.
struct Fleet<'a> {
    processes: Vec<SharedPolls>,
    answers: &'a dyn Fn(usize) -> (Duration, Answered),
    next: Vec<Instant>,
    under_way: Vec<(usize, Instant, Instant, Answered)>,
    /// When each has last heard an answer.
    heard: Vec<Option<Instant>>,
    trials: Vec<(Instant, usize)>,
    stopped: Option<usize>,
}

impl<'a> Fleet<'a> {
    /// The first one polls.
    fn new(vm: &Vm, number: u32, answers: &'a dyn Fn(usize) -> (Duration, Answered)) -> Self {
        let (mut processes, now) = (vm.processes(number), Instant::now());
        assert!(processes[0].look());
        let (next, heard) = (vec![now; processes.len()], vec![None; processes.len()]);
        Self { processes, answers, next, under_way: Vec::new(), heard, trials: Vec::new(), stopped: None }
    }

    async fn runs_for(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            for index in 0..self.processes.len() {
                self.act(index);
            }
            sleep(LOOK_EVERY).await;
        }
    }

    fn act(&mut self, index: usize) {
        if self.stopped == Some(index) {
            return;
        }
        let (now, process) = (Instant::now(), &mut self.processes[index]);
        let mut results: Vec<Answered> = Vec::new();
        let ended = self.under_way.extract_if(.., |(of, at, ..)| *of == index && *at <= now);
        for (_, _, sent, answered) in ended {
            process.write(PollResult::of(VERSION, sent, &answered));
            results.push(answered);
        }
        let polls = process.look();
        results.extend(process.news().into_iter().map(|news| news.answered));
        for answered in results {
            match answered {
                Ok(_) => {
                    process.heard();
                    self.heard[index] = Some(now);
                }
                Err(failure) if failure.kind == FailureKind::Throttled => process.answered_otherwise(),
                Err(_) => {}
            }
        }
        let is_trial = !polls && process.begins_trial(|_| VERSION).is_some();
        if is_trial {
            self.trials.push((now, index));
        } else if !polls || now < self.next[index] {
            return;
        }
        self.next[index] = now + Duration::from_secs(1);
        let (after, answer) = (self.answers)(index);
        self.under_way.push((index, now + after, now, answer));
    }

    /// When each that is not stopped has last heard an answer.
    fn heard_at(&self, began: Instant) -> Vec<Option<Duration>> {
        let running = (0..self.processes.len()).filter(|index| self.stopped != Some(*index));
        running.map(|index| self.heard[index].map(|at| at.saturating_duration_since(began))).collect()
    }
}

const FOREVER: Duration = Duration::from_hours(1);

fn answers_after(time: Duration) -> (Duration, Answered) {
    (time, Ok(body(NOTHING_YET)))
}

fn hangs() -> (Duration, Answered) {
    (FOREVER, refused(FailureKind::TimedOut, None))
}

fn answers(status: u16) -> (Duration, Answered) {
    (Duration::ZERO, refused(FailureKind::of_status(status), Some(status)))
}

/// Runs the fleet until all have heard an answer; returns the time until then.
async fn until_all_have_heard(fleet: &mut Fleet<'_>) -> Duration {
    let began = Instant::now();
    while fleet.heard_at(began).contains(&None) {
        assert!(began.elapsed() < Duration::from_secs(60), "{:?}", fleet.heard_at(began));
        fleet.runs_for(LOOK_EVERY).await;
    }
    began.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_trial_that_is_answered_late_is_heard_by_all_and_holds_up_no_other() {
    let vm = Vm::new();
    let late = Duration::from_secs(5);
    let answers = |index| if index == 0 { hangs() } else { answers_after(late) };
    let mut fleet = Fleet::new(&vm, 4, &answers);
    let after = until_all_have_heard(&mut fleet).await;
    assert!(after <= TRY_AFTER + late + LOOK_EVERY * 5, "{after:?}");
    let began = Instant::now();
    fleet.runs_for(Duration::from_secs(20)).await;
    let last = fleet.heard_at(began);
    assert!(last.iter().all(|at| at.is_some_and(|at| at >= Duration::from_secs(18))), "{last:?}");
    let claimant = fleet.trials[0].1;
    assert!(fleet.processes[claimant].lock.is_some(), "the first that was answered polls");
}

#[tokio::test(start_paused = true)]
async fn one_trial_begins_each_second_where_most_processes_hang_and_each_process_has_its_turn() {
    for answered in 1..8 {
        let vm = Vm::new();
        let answers =
            |index| if index == answered { answers_after(Duration::from_millis(5)) } else { hangs() };
        let mut fleet = Fleet::new(&vm, 8, &answers);
        let after = until_all_have_heard(&mut fleet).await;
        assert!(after <= TRY_AFTER + Duration::from_millis(7 * 1_100), "{after:?}");
        let pauses: Vec<_> = fleet.trials.windows(2).map(|trials| trials[1].0 - trials[0].0).collect();
        assert!(
            pauses.iter().all(|pause| (900..=1_100).contains(&pause.as_millis())),
            "{answered}: {pauses:?}"
        );
    }
}

/// The processes try in turn, also those that have tried before.
#[tokio::test(start_paused = true)]
async fn the_process_that_has_not_tried_for_longest_tries_next() {
    let vm = Vm::new();
    let mut fleet = Fleet::new(&vm, 7, &|_| hangs());
    fleet.runs_for(Duration::from_secs(60)).await;
    let tried: Vec<_> = fleet.trials.iter().map(|(_, index)| *index).collect();
    assert!(tried.len() >= 42, "{tried:?}");
    for six in tried.chunks_exact(6).take(7) {
        let mut six = six.to_vec();
        six.sort_unstable();
        assert_eq!(six, [1, 2, 3, 4, 5, 6], "{tried:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_429_to_a_trial_does_not_keep_the_others_from_theirs() {
    let vm = Vm::new();
    let answers = |index| match index {
        0 => hangs(),
        3 => answers_after(Duration::from_millis(5)),
        _ => answers(429),
    };
    let mut fleet = Fleet::new(&vm, 4, &answers);
    let after = until_all_have_heard(&mut fleet).await;
    assert!(after <= Duration::from_millis(4_700), "{after:?}");
}

/// The one that polls is stopped, and of the others all but one are cut off; any of them takes over.
#[tokio::test(start_paused = true)]
async fn what_one_process_is_answered_reaches_all_whoever_holds_the_locks() {
    for answered in 1..5 {
        let vm = Vm::new();
        let answers = |index| match index {
            _ if index == answered => answers_after(Duration::from_millis(5)),
            _ => answers(503),
        };
        let mut fleet = Fleet::new(&vm, 5, &answers);
        fleet.stopped = Some(0);
        let after = until_all_have_heard(&mut fleet).await;
        assert!(after <= TRY_AFTER + Duration::from_millis(4 * 1_100), "{answered}: {after:?}");
        for _ in 0..10 {
            let began = Instant::now();
            fleet.runs_for(Duration::from_millis(2_700)).await;
            let last = fleet.heard_at(began);
            assert!(last.iter().all(|at| at.is_some_and(|at| !at.is_zero())), "{answered}: {last:?}");
        }
        assert!(fleet.processes[answered].lock.is_some(), "{answered}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_process_that_left_the_polls_takes_them_back_when_the_other_one_is_cut_off_in_its_turn() {
    let vm = Vm::new();
    let cut_off = Cell::new(0);
    let answers =
        |index| if index == cut_off.get() { answers(503) } else { answers_after(Duration::from_millis(5)) };
    let mut fleet = Fleet::new(&vm, 2, &answers);
    until_all_have_heard(&mut fleet).await;
    fleet.runs_for(Duration::from_secs(1)).await;
    cut_off.set(1);
    fleet.heard = vec![None; 2];
    fleet.runs_for(Duration::from_millis(200)).await;
    fleet.heard = vec![None; 2];
    let after = until_all_have_heard(&mut fleet).await;
    assert!(after <= Duration::from_millis(2_500), "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn a_claim_ends_with_its_process() {
    let vm = Vm::new();
    let answers = |index| if index == 0 { answers(403) } else { answers_after(Duration::from_millis(5)) };
    let mut fleet = Fleet::new(&vm, 4, &answers);
    let claimant = loop {
        fleet.runs_for(LOOK_EVERY).await;
        if let Some(claimant) = fleet.processes.iter().position(|process| process.claim.is_some()) {
            break claimant;
        }
    };
    // It is killed.
    (fleet.processes[claimant], fleet.stopped) = (vm.process(), Some(claimant));
    let began = Instant::now();
    let polls =
        |fleet: &Fleet<'_>| (1..4).any(|index| index != claimant && fleet.processes[index].lock.is_some());
    while !polls(&fleet) {
        fleet.runs_for(LOOK_EVERY).await;
        assert!(began.elapsed() <= LOOK_EVERY * 4, "nobody polls");
    }
}

/// Such as by a proxy of its own.
#[tokio::test(start_paused = true)]
async fn a_process_that_gets_429_without_end_is_doubted_after_a_while() {
    let vm = Vm::new();
    let answers = |index| if index == 0 { answers(429) } else { answers_after(Duration::from_millis(5)) };
    let mut fleet = Fleet::new(&vm, 3, &answers);
    let after = until_all_have_heard(&mut fleet).await;
    assert!((10_000..=10_500).contains(&after.as_millis()), "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn a_process_that_is_stopped_in_its_trial_keeps_no_other_from_its_own() {
    let vm = Vm::new();
    let answers = |index| if index == 0 { answers(503) } else { answers_after(Duration::from_secs(2)) };
    let mut fleet = Fleet::new(&vm, 4, &answers);
    while fleet.trials.is_empty() {
        fleet.runs_for(LOOK_EVERY).await;
    }
    fleet.stopped = Some(fleet.trials[0].1);
    let after = until_all_have_heard(&mut fleet).await;
    assert!(after <= Duration::from_millis(3_500), "{after:?}");
}

/// The first answer of the service may take two minutes.
#[tokio::test(start_paused = true)]
async fn an_answer_that_took_long_reaches_the_others() {
    let vm = Vm::new();
    let (mut polls, mut reads) = (vm.process(), vm.process());
    let sent = Instant::now();
    for _ in 0..200 {
        polls.look();
        reads.look();
        sleep(LOOK_EVERY).await;
    }
    polls.write(PollResult::of(VERSION, sent, &Ok(body("late"))));
    assert_eq!(texts(&mut reads), ["late"]);
}

/// The next one may be cut off, too: then it takes some more trials.
#[tokio::test(start_paused = true)]
async fn a_process_that_gets_no_answers_either_claims_nothing() {
    let vm = Vm::new();
    let (mut processes, trials) = (vm.processes(5), Cell::new(0));
    assert!(processes[0].look(), "it polls");
    let began = Instant::now();
    let mut heard = None;
    while began.elapsed() < Duration::from_secs(60) {
        for (index, process) in processes.iter_mut().enumerate() {
            let is_cut_off = index < 3;
            let answer: &dyn Fn() -> Answered = if is_cut_off {
                &|| refused(FailureKind::Unreachable, None)
            } else {
                &|| Ok(body(NOTHING_YET))
            };
            let polls = act(process, answer, &trials);
            assert!(!polls || index == 0 || !is_cut_off, "process {index} polls");
            if polls && !is_cut_off {
                heard.get_or_insert(began.elapsed());
            }
        }
        sleep(LOOK_EVERY).await;
    }
    assert!(heard.is_some_and(|after| after <= Duration::from_millis(4_500)), "{heard:?}");
}

/// Answers come, only late: the first ones when the others have begun to doubt.
#[tokio::test(start_paused = true)]
async fn nobody_claims_the_polls_of_one_whose_answers_are_late() {
    let vm = Vm::new();
    let (mut polls, mut reads) = (vm.process(), vm.process());
    assert!(polls.look());
    sleep(Duration::from_millis(2_500)).await;
    assert!(!reads.look());
    // It did not look for a while, so it knows of no silence yet.
    for _ in 0..21 {
        polls.look();
        assert!(!reads.look());
        sleep(LOOK_EVERY).await;
    }
    assert!(reads.begins_trial(|_| VERSION).is_some());
    let sent = Instant::now();
    polls.write(PollResult::of(
        VERSION,
        sent.checked_sub(Duration::from_secs(5)).unwrap(),
        &Ok(body(NOTHING_YET)),
    ));
    reads.look();
    assert_eq!(texts(&mut reads), [NOTHING_YET]);
    reads.heard();
    reads.write(PollResult::of(VERSION, sent, &Ok(body(NOTHING_YET))));
    sleep(LOOK_EVERY).await;
    assert!(polls.look() && !reads.look(), "the first one goes on");
}

#[tokio::test(start_paused = true)]
async fn a_process_that_begins_takes_nothing_from_the_future_or_from_versions_that_are_not_polled_any_more() {
    let vm = Vm::new();
    let mut first = vm.process();
    first.write(PollResult::of(ApiVersion::V2017_11_01, Instant::now(), &Ok(body("never"))));
    poll(&mut first, "a");
    first.write(PollResult::of(ApiVersion::V2017_11_01, Instant::now(), &Ok(body("Preempt"))));
    sleep(OUTDATED_AFTER).await;
    poll(&mut first, "b");
    assert_eq!(texts(&mut vm.process()), ["b"]);
    simulate(wall_now() - Duration::from_secs(60));
    assert_eq!(texts(&mut vm.process()), [""; 0]);
    poll(&mut first, "c");
    assert_eq!(texts(&mut vm.process()), ["c"]);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_was_requested_before_the_last_one_is_no_news() {
    let vm = Vm::new();
    let (mut stopped, mut other, mut reader) = (vm.process(), vm.process(), vm.process());
    poll(&mut stopped, "a");
    assert_eq!(texts(&mut reader), ["a"]);
    let requested = Instant::now();
    assert!(!other.look());
    sleep(SILENT_AFTER).await;
    poll(&mut other, "Preempt");
    assert_eq!(texts(&mut reader), ["Preempt"]);
    sleep(Duration::from_secs(1)).await;
    stopped.write(PollResult::of(VERSION, requested, &Ok(body("outdated"))));
    assert_eq!(texts(&mut reader), [""; 0]);
    assert_eq!(texts(&mut stopped), ["Preempt"], "which it hears, too");
}

#[tokio::test(start_paused = true)]
async fn a_process_takes_nothing_that_is_old_when_it_begins() {
    let vm = Vm::new();
    let mut first = vm.process();
    poll(&mut first, "a");
    assert_eq!(texts(&mut vm.process()), ["a"]);
    sleep(LATE_MAX + Duration::from_millis(1)).await;
    assert_eq!(texts(&mut vm.process()), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn processes_that_are_pinned_to_a_version_share_with_their_like() {
    let vm = Vm::new();
    let (mut all, mut pinned, mut like) = (vm.process(), vm.pinned(Some(VERSION)), vm.pinned(Some(VERSION)));
    poll(&mut all, "all");
    poll(&mut pinned, "pinned");
    assert!(!like.look());
    assert_eq!(texts(&mut like), ["pinned"]);
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_set_makes_nobody_deaf() {
    for is_ahead in [false, true] {
        let vm = Vm::new();
        let mut processes = vm.processes(3);
        polls(&mut processes, 5).await;
        let (now, hour) = (wall_now(), Duration::from_hours(1));
        simulate(if is_ahead { now + hour } else { now - hour });
        let (sent, longest) = polls(&mut processes, 20).await;
        assert!((19..=21).contains(&sent), "{sent} polls in 20 s");
        assert!(longest < STEADY + Duration::from_secs(1), "{longest:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_directory_that_can_not_be_used_is_no_hindrance() {
    let directory = SharedDirectory::new(Path::new("/nonexistent/reprieve"), "");
    let mut processes: Vec<_> = {
        let directory = Arc::new(directory);
        (0..2).map(|_| SharedPolls::new(Arc::clone(&directory), None)).collect()
    };
    for _ in 0..50 {
        assert!(processes.iter_mut().all(SharedPolls::look));
        sleep(LOOK_EVERY).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_directory_that_was_removed_is_made_again_and_one_process_polls() {
    let vm = Vm::new();
    let mut processes = vm.processes(6);
    assert!((5..=6).contains(&polls(&mut processes, 5).await.0));
    fs::remove_dir_all(vm.path()).expect("removed");
    let (sent, longest) = polls(&mut processes, 10).await;
    assert!((10..=12).contains(&sent) && longest < TAKEN_OVER, "{sent} polls in 10 s, {longest:?}");
    fs::remove_dir_all(vm.path()).expect("it was made again");
    fs::write(vm.path(), "in the way").expect("a file");
    let (sent, _) = polls(&mut processes, 2).await;
    assert!(sent >= 12, "each by itself: {sent}");
    fs::remove_file(vm.path()).expect("removed");
    polls(&mut processes, UNABLE_FOR.as_secs()).await;
    assert!((10..=11).contains(&polls(&mut processes, 10).await.0));
}

#[tokio::test(start_paused = true)]
async fn a_process_that_can_not_write_leaves_the_polls_to_another() {
    let vm = Vm::new();
    let (mut first, mut second) = (vm.process(), vm.process());
    poll(&mut first, "a");
    let [answers, aside] = ["json", "aside"].map(|what| first.file(what));
    fs::rename(&answers, &aside).and_then(|()| fs::create_dir(&answers)).expect("a directory in the way");
    poll(&mut first, "b");
    sleep(LOOK_EVERY).await;
    assert!(first.look(), "it polls for itself until it sees another one poll");
    fs::remove_dir(&answers).expect("removed");
    poll(&mut second, "c");
    assert!(!first.look());
    assert_eq!(texts(&mut first), ["c"]);
}
