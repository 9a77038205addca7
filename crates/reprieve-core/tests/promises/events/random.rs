//! Random events in random order, with stops and a store that fails now and then: nothing is
//! approved too early, no job runs on under an eviction, nothing is lost, and every job completes.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng};
use reprieve_core::interruption::ApproveUser;
use reprieve_core::ports::{Change, InterruptionSource};

use super::*;

/// The number of simulated lives.
const LIVES: u64 = 30;

/// A platform that checks approvals.
#[derive(Debug, Clone)]
struct Platform {
    notices: ManualNotices,
    store: Store,
    active: Arc<Mutex<BTreeMap<NoticeId, (Notice, Instant)>>>,
    wrongs: Arc<Mutex<Vec<String>>>,
    user_at_once: bool,
}

#[async_trait]
impl InterruptionSource for Platform {
    async fn next(&self) -> Change {
        self.notices.next().await
    }

    async fn approve(&self, ids: &[NoticeId], _: Duration) -> reprieve_core::Result<()> {
        for id in ids {
            let held = leased(&self.store).await;
            let Some((notice, announced_at)) = self.active.lock().unwrap().get(id).cloned() else { continue };
            if announced_at == Instant::now() {
                // The worker need not have seen the event yet.
                continue;
            }
            let waits = notice.kind != NoticeKind::Freeze
                && !(self.user_at_once && notice.initiator == Initiator::User);
            if notice.phase == Phase::Started
                || matches!(notice.kind, NoticeKind::Preempt | NoticeKind::Rebalance)
                || notice.resources != ["vm_0"]
                || (waits && held > 0)
            {
                self.wrongs.lock().unwrap().push(format!("approved with {held} held: {notice:?}"));
            }
        }
        sleep(ms(20)).await;
        Ok(())
    }
}

impl Platform {
    fn tell(&self, notice: Notice) {
        let now = Instant::now();
        self.active.lock().unwrap().insert(notice.id.clone(), (notice.clone(), now));
        self.notices.notice(notice);
    }

    fn end(&self, id: &NoticeId) {
        if let Some((notice, _)) = self.active.lock().unwrap().remove(id) {
            let started = notice.phase == Phase::Started;
            self.notices.over(id, if started { Ending::Completed } else { Ending::Withdrawn });
        }
    }

    /// Whether an eviction has been active for so long that no job may be held, but not so long
    /// that it counts as past.
    fn takes_back(&self) -> bool {
        let is_active = |(notice, at): &(Notice, Instant)| {
            notice.kind == NoticeKind::Preempt && at.elapsed() > secs(12) && at.elapsed() < secs(1700)
        };
        self.active.lock().unwrap().values().any(is_active)
    }
}

fn any_notice(random: &mut SmallRng) -> Notice {
    let kind = match random.random_range(0..7) {
        0 => NoticeKind::Preempt,
        1 => NoticeKind::Terminate,
        2 => NoticeKind::Reboot,
        3 => NoticeKind::Redeploy,
        4 | 5 => NoticeKind::Freeze,
        _ => NoticeKind::Rebalance,
    };
    let notice_s = [0, 3, 14, 16, 60, 300, 900, 10_000, 700_000][random.random_range(0..9)];
    let resources: &[&str] = if random.random_bool(0.8) { &["vm_0"] } else { &["vm_0", "vm_1"] };
    let id = ["a", "b", "c"][random.random_range(0..3)];
    let notice = Notice {
        id: NoticeId::new(id),
        initiator: [Initiator::Platform, Initiator::User, Initiator::Unknown][random.random_range(0..3)],
        duration: [None, Some(0), Some(5), Some(30), Some(u64::MAX)][random.random_range(0..5)].map(secs),
        ..event(kind, notice_s).of(resources.iter().copied(), "vm_0")
    };
    if random.random_bool(0.3) { started(notice) } else { notice }
}

async fn life(seed: u64) {
    let mut random = SmallRng::seed_from_u64(seed);
    let inner = memory::store();
    let (store, faults) = Faults::wrap(inner.clone());
    let job = Steps::default();
    let plans: Vec<_> =
        (0..12).map(|_| Plan::new(random.random_range(1..200), random.random_range(10..1000))).collect();
    let jobs = enqueue(&inner, &plans).await;
    let user_at_once = random.random_bool(0.2);
    let policy = Policy {
        approve: [Approve::Sole, Approve::Leader, Approve::Sole][random.random_range(0..3)],
        approve_user: if user_at_once { ApproveUser::AtOnce } else { ApproveUser::Drained },
        predicted_failure: [PredictedFailure::Warn, PredictedFailure::Drain][random.random_range(0..2)],
        ..Policy::default()
    };
    let mut platform = Platform {
        notices: ManualNotices::answered(),
        store: inner.clone(),
        active: Arc::default(),
        wrongs: Arc::default(),
        user_at_once,
    };
    let lease = secs([16, 60, 300][random.random_range(0..3)]);
    let run = |platform: &Platform, stopping| {
        let worker = Worker::builder(store.clone()).job(job.clone()).vm("vm_0");
        let worker = worker.settings(Settings { lease, ..with(policy.clone()) });
        let worker = worker.interruptions(Arc::new(platform.clone())).build().unwrap();
        tokio::spawn(worker.run(stopping))
    };
    let mut other_processes = 0;
    let (mut stopper, mut ending) = stopping();
    let mut running = run(&platform, ending);
    for _ in 0..random.random_range(5..30) {
        match random.random_range(0..12) {
            0..6 => platform.tell(any_notice(&mut random)),
            6..8 => platform.end(&NoticeId::new(["a", "b", "c"][random.random_range(0..3)])),
            8 => {
                let op = [Op::Renew, Op::Save, Op::Put, Op::List, Op::Receive][random.random_range(0..5)];
                faults.next_calls(op, 2, Fault::Delay(ms(random.random_range(1..300))));
            }
            9 => {
                other_processes += 1;
                stopper.stop();
                let began = Instant::now();
                running.await.expect("a worker that does not panic");
                assert!(began.elapsed() < secs(13), "seed {seed}: a stop took {:?}", began.elapsed());
                assert_eq!(leased(&inner).await, 0, "seed {seed}: something is held after a stop");
                (stopper, ending) = stopping();
                // Another process on the same machine.
                platform.notices = ManualNotices::silent();
                let active: Vec<_> = platform.active.lock().unwrap().values().cloned().collect();
                for (notice, _) in active {
                    platform.tell(Notice { received: Instant::now(), ..notice });
                }
                platform.notices.answer();
                running = run(&platform, ending);
            }
            _ => {}
        }
        let wait = [1, 900, 12_500, 60_000, 700_000][random.random_range(0..5)];
        sleep(ms(random.random_range(1..=wait))).await;
        assert!(!running.is_finished(), "seed {seed}: the worker has died");
        if platform.takes_back() {
            assert_eq!(leased(&inner).await, 0, "seed {seed}: something is held under an eviction");
        }
        assert_eq!(*platform.wrongs.lock().unwrap(), [""; 0], "seed {seed}");
    }
    faults.clear_all();
    for id in ["a", "b", "c"] {
        platform.end(&NoticeId::new(id));
    }
    // The slowest job takes ten minutes.
    let ended = Instant::now();
    while total(&inner).await > 0 {
        assert!(ended.elapsed() < secs(5_000), "seed {seed}: {} jobs are left", total(&inner).await);
        sleep(secs(5)).await;
    }
    assert_eq!(poisoned(&inner).await, [""; 0], "seed {seed}");
    for (id, plan) in jobs.iter().zip(&plans) {
        let mut steps = job.trace.steps(id);
        steps.sort_unstable();
        steps.dedup();
        assert_eq!(steps.len(), plan.steps as usize, "seed {seed}: steps of {id}");
    }
    assert_eq!(job.trace.redone(), 0, "seed {seed}: work was done again, though nothing died");
    // A stopped process was ready, and stays ready.
    if other_processes == 0 {
        sleep(secs(60)).await;
        let marks = inner.blobs.list("ready/").await.unwrap();
        assert_eq!(marks, [], "seed {seed}");
    }
}

#[test]
fn no_order_of_events_loses_work_or_lets_go_of_the_machine_too_early() {
    for seed in 0..LIVES {
        let clock = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        clock.unwrap().block_on(life(seed));
    }
}
