use super::*;

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn failed() -> Answer {
    Answer::Failed("connection refused".to_owned())
}

/// A breaker with a clock that a test moves.
struct Tried {
    breaker: Breaker,
    now: Duration,
}

impl Tried {
    /// A closed breaker whose first probe was answered.
    fn closed() -> Self {
        let mut tried = Self { breaker: Breaker::new(), now: s(100) };
        assert_eq!(tried.probe(&Answer::Served), None);
        tried
    }

    fn open() -> Self {
        let mut tried = Self::closed();
        assert!(matches!(tried.probe(&failed()), Some(Change::Opened(_))));
        tried
    }

    fn half_open() -> Self {
        let mut tried = Self::open();
        tried.wait(s(1));
        assert_eq!(tried.probe(&Answer::Served), Some(Change::HalfOpened(s(1))));
        tried
    }

    fn announced() -> Self {
        let mut tried = Self::closed();
        assert!(matches!(tried.signal(&Signal::Begins), Some(Change::Opened(_))));
        tried
    }

    fn wait(&mut self, time: Duration) {
        self.now += time;
    }

    fn signal(&mut self, signal: &Signal) -> Option<Change> {
        self.breaker.on_signal(signal, self.now, 0.5)
    }

    fn call(&mut self, answer: &Answer) -> Option<Change> {
        self.breaker.on_call(answer, self.now)
    }

    fn probe(&mut self, answer: &Answer) -> Option<Change> {
        self.breaker.on_probe_begins();
        self.breaker.on_probe(answer, self.now, 0.5)
    }

    /// How long from now until the next probe.
    fn next(&self) -> Duration {
        self.breaker.probe_at().saturating_sub(self.now)
    }

    /// Moves to the next probe, and answers it.
    fn next_probe(&mut self, answer: &Answer) -> Option<Change> {
        self.now = self.now.max(self.breaker.probe_at());
        self.probe(answer)
    }

    /// Answers its probes until it is closed.
    fn close(&mut self) {
        while self.breaker.state() != Closed {
            self.next_probe(&Answer::Served);
        }
    }

    fn since(&self, time: Duration) -> Duration {
        self.now.saturating_sub(time)
    }

    #[track_caller]
    fn is(&self, state: BreakerState) {
        assert_eq!(self.breaker.state(), state, "{self:?}", self = self.breaker);
    }
}

use BreakerState::{Closed, HalfOpen, Open as IsOpen};

/// The table above the module, a row of events for each state.
#[test]
fn every_event_in_every_state() {
    type Event = (&'static str, fn(&mut Tried) -> Option<Change>);
    let events: [Event; 11] = [
        ("scheduled", |it| it.signal(&Signal::Scheduled(Some(1)))),
        ("begins", |it| it.signal(&Signal::Begins)),
        ("replica begins", |it| it.signal(&Signal::ReplicaBegins)),
        ("switched", |it| it.signal(&Signal::Switched)),
        ("ended", |it| it.signal(&Signal::Ended)),
        ("scaled", |it| it.signal(&Signal::Scaled)),
        ("disconnected", |it| it.signal(&Signal::Disconnected)),
        ("call served", |it| it.call(&Answer::Served)),
        ("call failed", |it| it.call(&failed())),
        ("probe served", |it| it.probe(&Answer::Served)),
        ("probe failed", |it| it.probe(&failed())),
    ];
    // After the event: the state of one that was closed, open by a failure, open by an announcement, half-open.
    let expected = [
        [Closed, IsOpen, IsOpen, HalfOpen],
        [IsOpen, IsOpen, IsOpen, IsOpen],
        [Closed, IsOpen, IsOpen, HalfOpen],
        [Closed, IsOpen, IsOpen, HalfOpen],
        [Closed, IsOpen, IsOpen, HalfOpen],
        [Closed, IsOpen, IsOpen, HalfOpen],
        [Closed, IsOpen, IsOpen, HalfOpen],
        [Closed, IsOpen, IsOpen, HalfOpen],
        [Closed, IsOpen, IsOpen, IsOpen],
        [Closed, HalfOpen, IsOpen, HalfOpen],
        [IsOpen, IsOpen, IsOpen, IsOpen],
    ];
    for ((name, event), expected) in events.iter().zip(expected) {
        let states = [Tried::closed(), Tried::open(), Tried::announced(), Tried::half_open()];
        let names = ["closed", "open", "announced", "half-open"];
        for ((mut tried, was), expected) in states.into_iter().zip(names).zip(expected) {
            let before = tried.breaker.state();
            let change = event(&mut tried);
            assert_eq!(tried.breaker.state(), expected, "{name} while {was}");
            let has_changed = tried.breaker.state() != before;
            assert_eq!(change.is_some(), has_changed, "{name} while {was}: {change:?}");
        }
    }
}

#[test]
fn an_announced_maintenance_opens_it_until_the_switch_and_a_probe() {
    let mut tried = Tried::announced();
    // Microsoft's time line: Starting, Start after 20 s, FailoverComplete after 10 more.
    assert_eq!(tried.next(), s(60));
    tried.wait(s(20));
    assert_eq!(tried.signal(&Signal::Begins), None);
    assert_eq!(tried.next(), s(60), "counted from the last receipt");
    tried.wait(s(1));
    tried.signal(&Signal::Disconnected);
    assert_eq!(tried.probe(&Answer::Served), None, "the old primary may still serve");
    tried.wait(s(9));
    tried.signal(&Signal::Switched);
    assert_eq!(tried.next(), SPREAD / 2, "by the random number");
    assert_eq!(tried.next_probe(&Answer::Served), Some(Change::HalfOpened(ms(32_500))));
    tried.signal(&Signal::Ended);
    tried.is(HalfOpen);
}

#[test]
fn without_another_word_a_probe_decides_after_a_minute() {
    for (answer, state) in [(Answer::Served, HalfOpen), (failed(), IsOpen)] {
        let mut tried = Tried::announced();
        tried.wait(s(60));
        tried.probe(&answer);
        tried.is(state);
    }
}

#[test]
fn announcements_alone_open_it_for_five_minutes_an_hour() {
    let mut tried = Tried::closed();
    let began = tried.now;
    let (mut open, mut ignored) = (Duration::ZERO, 0);
    while tried.since(began) < HOUR {
        if tried.signal(&Signal::Begins) == Some(Change::Ignored) {
            ignored += 1;
        } else {
            let Some(Change::HalfOpened(was_open)) = tried.next_probe(&Answer::Served) else {
                panic!("a probe after the announced time")
            };
            open += was_open;
            tried.close();
        }
        tried.wait(s(10));
    }
    assert_eq!(open, ANNOUNCED_PER_HOUR);
    assert!(ignored > 200, "{ignored}");
    // The hour moves on.
    tried.wait(s(60));
    assert!(matches!(tried.signal(&Signal::Begins), Some(Change::Opened(_))));
}

#[test]
fn announcements_that_follow_each_other_do_not_add_up_to_more() {
    let mut tried = Tried::announced();
    let (began, mut open) = (tried.now, Duration::ZERO);
    while tried.since(began) < HOUR {
        tried.wait(s(1));
        open += s(u64::from(tried.breaker.state() == IsOpen));
        tried.signal(&Signal::Begins);
        if tried.breaker.probe_at() <= tried.now {
            tried.probe(&Answer::Served);
        }
    }
    assert!(open <= ANNOUNCED_PER_HOUR && open > ANNOUNCED_PER_HOUR / 2, "{open:?}");
}

#[test]
fn a_proof_takes_the_time_out_of_the_account() {
    for round in 0..20 {
        let mut tried = Tried::closed();
        for _ in 0..round {
            assert!(matches!(tried.signal(&Signal::Begins), Some(Change::Opened(_))), "{round}");
            tried.wait(s(1));
            tried.signal(&Signal::Disconnected);
            tried.wait(s(59));
            tried.close();
        }
    }
}

#[test]
fn calls_open_it_by_their_rate() {
    let mut tried = Tried::closed();
    assert_eq!(tried.call(&failed()), None);
    assert_eq!(tried.next(), s(1), "a failed call asks for a probe, a second after the last");
    assert_eq!(tried.call(&failed()), None);
    let Some(Change::Opened(why)) = tried.call(&failed()) else { panic!("{tried:?}", tried = tried.breaker) };
    assert_eq!(why, "3 of 3 calls failed within 10 s, at last with: connection refused");

    let mut tried = Tried::closed();
    for _ in 0..7 {
        tried.call(&Answer::Served);
    }
    for _ in 0..6 {
        assert_eq!(tried.call(&failed()), None, "less than half");
    }
    assert!(tried.call(&failed()).is_some());

    let mut tried = Tried::closed();
    for _ in 0..5 {
        for _ in 0..2 {
            assert_eq!(tried.call(&failed()), None);
        }
        tried.wait(WINDOW);
    }
    tried.is(Closed);
}

#[test]
fn probes_of_an_open_one_come_ever_later_up_to_ten_seconds() {
    let mut tried = Tried::open();
    let mut pauses = vec![tried.next()];
    for _ in 0..6 {
        tried.next_probe(&failed());
        pauses.push(tried.next());
    }
    assert_eq!(pauses, [1, 1, 2, 4, 8, 10, 10].map(s));
}

#[test]
fn a_half_open_one_admits_one_then_twice_as_many() {
    let mut tried = Tried::half_open();
    let mut admitted = Vec::new();
    while tried.breaker.state() == HalfOpen {
        let mut count = 0;
        while tried.breaker.state() == HalfOpen && tried.breaker.admit() {
            count += 1;
        }
        admitted.push(count);
        for _ in 0..count {
            tried.call(&Answer::Served);
        }
    }
    assert_eq!(admitted, [1, 2, 4, 8, 16]);
    tried.is(Closed);
    assert!(tried.breaker.admit());
}

#[test]
fn a_half_open_one_that_nobody_calls_closes_by_its_probes() {
    let mut tried = Tried::half_open();
    let began = tried.now;
    while tried.breaker.state() == HalfOpen {
        tried.next_probe(&Answer::Served);
    }
    assert_eq!(tried.since(began), s(5));
    tried.is(Closed);
}

#[test]
fn one_that_probes_closed_after_calls_had_failed_is_done_without_until_a_call_is_answered_or_for_a_minute() {
    let closed_by_probes = || {
        let mut tried = Tried::closed();
        (0..3).for_each(|_| drop(tried.call(&failed())));
        tried.is(IsOpen);
        tried.close();
        tried
    };
    let is_done_without = |tried: &Tried| tried.breaker.is_done_without(tried.now);
    let mut answered = closed_by_probes();
    assert!(is_done_without(&answered));
    assert!(answered.breaker.away_for(answered.now) > s(1), "it has not been proven to be back");
    answered.call(&Answer::Served);
    assert!(is_done_without(&answered), "it may fail by turns");
    answered.wait(s(10));
    assert!(is_done_without(&answered));
    answered.call(&Answer::Served);
    assert!(!is_done_without(&answered));
    assert_eq!(answered.breaker.away_since(), None);
    let mut silent = closed_by_probes();
    silent.wait(s(59));
    assert!(is_done_without(&silent));
    silent.wait(s(1));
    assert!(!is_done_without(&silent));
    // One call fails, and then a probe: that opens it.
    let by_probe = |waited| {
        let mut tried = Tried::closed();
        tried.call(&failed());
        tried.wait(waited);
        tried.next_probe(&failed());
        tried.is(IsOpen);
        tried.close();
        tried
    };
    assert!(is_done_without(&by_probe(s(0))));
    assert!(!is_done_without(&by_probe(s(60))), "it had failed long before");
    assert!(!is_done_without(&Tried::closed()), "no call has failed");
}

#[test]
fn a_failure_opens_a_half_open_one() {
    let mut tried = Tried::half_open();
    assert!(tried.breaker.admit());
    assert!(matches!(tried.call(&failed()), Some(Change::Opened(_))));
    assert!(!tried.breaker.admit());
}

#[test]
fn a_half_open_one_closes_where_fewer_calls_fail_than_open_a_closed_one() {
    for (every, closes) in [(3, true), (2, false)] {
        let mut tried = Tried::half_open();
        let mut call = 0;
        while tried.breaker.state() == HalfOpen {
            assert!(tried.breaker.admit());
            call += 1;
            tried.call(&if call % every == 0 { failed() } else { Answer::Served });
        }
        tried.is(if closes { Closed } else { IsOpen });
    }
    let mut tried = Tried::half_open();
    for _ in 0..3 {
        tried.call(&Answer::Served);
    }
    assert_eq!(tried.call(&failed()), None);
    assert_eq!(tried.call(&failed()), None);
    let Some(Change::Opened(why)) = tried.call(&failed()) else { panic!("half of all") };
    assert_eq!(why, "a call failed: connection refused");
}

#[test]
fn calls_that_were_let_through_half_open_count_on_when_it_has_closed() {
    let mut tried = Tried::half_open();
    (0..31).for_each(|_| drop(tried.call(&Answer::Served)));
    tried.is(Closed);
    for _ in 0..30 {
        assert_eq!(tried.call(&failed()), None, "less than half of ten seconds");
    }
    assert!(tried.call(&failed()).is_some());
}

#[test]
fn answers_to_calls_that_were_under_way_do_not_put_off_the_probe_of_a_lost_connection() {
    let mut tried = Tried::half_open();
    tried.wait(ms(100));
    tried.signal(&Signal::Disconnected);
    assert_eq!(tried.next(), ms(900));
    (0..31).for_each(|_| drop(tried.call(&Answer::Served)));
    tried.is(Closed);
    assert_eq!(tried.next(), ms(900));
    tried.next_probe(&Answer::Served);
    assert_eq!(tried.next(), CLOSED_PAUSE);
}

#[test]
fn a_replicas_maintenance_concerns_those_who_read_replicas() {
    let mut tried = Tried::closed();
    assert!(!tried.breaker.avoids_replicas(tried.now));
    tried.signal(&Signal::ReplicaBegins);
    assert!(tried.breaker.avoids_replicas(tried.now));
    tried.is(Closed);
    tried.signal(&Signal::Ended);
    assert!(!tried.breaker.avoids_replicas(tried.now));
    // No word of its end.
    tried.signal(&Signal::ReplicaBegins);
    tried.wait(REPLICA_MAX);
    assert!(!tried.breaker.avoids_replicas(tried.now));
    // The old primary is the replica until the maintenance has ended.
    tried.signal(&Signal::Begins);
    tried.signal(&Signal::Switched);
    assert!(tried.breaker.avoids_replicas(tried.now));
}

#[test]
fn a_scheduled_maintenance_is_shown_until_it_has_ended() {
    let mut tried = Tried::closed();
    tried.signal(&Signal::Scheduled(Some(7)));
    assert_eq!(tried.breaker.scheduled_unix_ms(), Some(7));
    tried.signal(&Signal::Ended);
    assert_eq!(tried.breaker.scheduled_unix_ms(), None);
}

#[test]
fn connections_are_made_anew_after_a_switch_the_end_scaling_and_an_outage() {
    let mut tried = Tried::closed();
    for (number, signal) in [Signal::Switched, Signal::Ended, Signal::Scaled].iter().enumerate() {
        tried.signal(signal);
        assert_eq!(tried.breaker.topology(), number as u64 + 1);
    }
    assert_eq!(Tried::half_open().breaker.topology(), 1);
}

#[test]
fn late_doubled_and_disordered_announcements_open_it_for_no_more_than_a_minute_each() {
    let signals = [Signal::Ended, Signal::Switched, Signal::Begins, Signal::Scheduled(None), Signal::Begins];
    let mut tried = Tried::closed();
    let began = tried.now;
    for signal in signals {
        tried.signal(&signal);
    }
    tried.is(IsOpen);
    tried.close();
    assert_eq!(tried.since(began), s(65));
}

#[test]
fn announcements_that_never_end_are_probed_and_count_after_that() {
    let mut tried = Tried::announced();
    // The loss of a connection proves the first.
    tried.signal(&Signal::Disconnected);
    let (mut probes, mut open) = (0, 0);
    for second in 0..4 * 3_600 {
        if second % 40 == 0 {
            tried.signal(&Signal::Begins);
        }
        if tried.next() == Duration::ZERO {
            probes += 1;
            tried.probe(&Answer::Served);
        }
        tried.wait(s(1));
        tried.call(&Answer::Served);
        open += u64::from(tried.breaker.state() == IsOpen);
    }
    assert!(probes > 100, "{probes}");
    assert!(open <= 120 + 4 * 300 + 60, "open for {open} s of four hours");
}

#[test]
fn a_suspicion_that_comes_while_a_probe_is_under_way_has_another_probe_follow_it() {
    for is_call in [true, false] {
        let mut breaker = Breaker::new();
        let at = |ms| Duration::from_millis(ms);
        breaker.on_probe_begins();
        breaker.on_probe(&Answer::Served, at(0), 0.5);
        breaker.on_probe_begins();
        if is_call {
            breaker.on_call(&failed(), at(15_000));
        } else {
            breaker.on_signal(&Signal::Disconnected, at(15_000), 0.0);
        }
        breaker.on_probe(&Answer::Served, at(15_400), 0.5);
        assert_eq!(breaker.probe_at(), at(15_400) + PAUSE_MIN);
        breaker.on_probe_begins();
        breaker.on_probe(&Answer::Served, at(16_500), 0.5);
        assert_eq!(breaker.probe_at(), at(16_500) + CLOSED_PAUSE);
    }
}

#[test]
fn one_whose_calls_fail_by_turns_is_done_without_all_the_time() {
    let mut tried = Tried::closed();
    let began = tried.now;
    for _ in 0..20 {
        (0..3).for_each(|_| drop(tried.call(&failed())));
        tried.is(IsOpen);
        assert_eq!(tried.breaker.away_since(), Some(began));
        tried.close();
        for _ in 0..3 {
            tried.call(&Answer::Served);
            tried.wait(s(1));
            assert!(tried.breaker.is_done_without(tried.now));
        }
    }
}
