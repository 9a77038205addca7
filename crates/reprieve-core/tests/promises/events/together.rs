//! Events for several machines.

use super::*;

struct Machine {
    notices: ManualNotices,
    _stopper: reprieve_core::worker::Stopper,
}

const SET: [&str; 3] = ["vm_0", "vm_1", "vm_2"];

fn machine(store: &Store, job: &Steps, name: &str, approve: Approve) -> Machine {
    let notices = ManualNotices::answered();
    let policy = Policy { approve, ..Policy::default() };
    let worker = Worker::builder(store.clone()).job(job.clone()).vm(name);
    let worker = worker.settings(with(policy)).interruptions(Arc::new(notices.clone())).build().unwrap();
    let (stopper, stopping) = stopping();
    tokio::spawn(worker.run(stopping));
    Machine { notices, _stopper: stopper }
}

fn tell(machine: &Machine, name: &str, resources: &[&str]) {
    let notice = event(NoticeKind::Terminate, 600).of(resources.iter().copied(), name);
    machine.notices.notice(notice);
}

#[tokio::test(start_paused = true)]
async fn no_worker_approves_by_default() {
    let (store, job) = (memory::store(), Steps::default());
    let machines = SET.map(|name| machine(&store, &job, name, Approve::Sole));
    for (machine, name) in machines.iter().zip(SET) {
        tell(machine, name, &SET);
    }
    sleep(secs(600)).await;
    assert!(machines.iter().all(|machine| machine.notices.approved().is_empty()));
}

#[tokio::test(start_paused = true)]
async fn the_first_named_approves_once_every_worker_is_ready() {
    let (store, job) = (memory::store(), Steps::default());
    enqueue(&store, &[Plan::new(90, 1000)]).await;
    let [busy, leader, third] =
        ["VM_2", "vm_0", "vm_1"].map(|name| machine(&store, &job, name, Approve::Leader));
    sleep(secs(20)).await;
    let began = Instant::now();
    for (machine, name) in [(&leader, "vm_0"), (&third, "vm_1"), (&busy, "vm_2")] {
        tell(machine, name, &SET);
    }
    within(secs(120), "an approval", async || !leader.notices.approved().is_empty()).await;
    assert_eq!(total(&store).await, 0, "the job was allowed to finish");
    assert!(began.elapsed() > secs(60), "not before the busy one is ready: {:?}", began.elapsed());
    sleep(secs(60)).await;
    assert_eq!(leader.notices.approved().len(), 1);
    assert_eq!((third.notices.approved(), busy.notices.approved()), (vec![], vec![]));
    for machine in [&leader, &third, &busy] {
        machine.notices.over(&NoticeId::new("event"), Ending::Completed);
    }
    within(secs(30), "no mark is left", async || store.blobs.list("ready/").await.unwrap().is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_never_is_ready_leaves_the_event_to_begin_by_itself() {
    let (store, job) = (memory::store(), Steps::default());
    let leader = machine(&store, &job, "vm_0", Approve::Leader);
    tell(&leader, "vm_0", &["vm_0", "vm_1"]);
    sleep(secs(600)).await;
    assert_eq!(leader.notices.approved(), []);
}

#[tokio::test(start_paused = true)]
async fn a_second_worker_on_a_machine_is_waited_for_too() {
    let (store, job) = (memory::store(), Steps::default());
    let leader = machine(&store, &job, "vm_0", Approve::Leader);
    let other = machine(&store, &job, "vm_1", Approve::Leader);
    let second = machine(&store, &job, "vm_1", Approve::Leader);
    sleep(secs(20)).await;
    tell(&leader, "vm_0", &["vm_0", "vm_1"]);
    tell(&other, "vm_1", &["vm_0", "vm_1"]);
    sleep(secs(60)).await;
    assert_eq!(leader.notices.approved(), []);
    tell(&second, "vm_1", &["vm_0", "vm_1"]);
    within(secs(10), "an approval", async || !leader.notices.approved().is_empty()).await;
}

/// The present marks.
async fn marks(store: &Store) -> usize {
    store.blobs.list("ready/").await.unwrap().len()
}

#[tokio::test(start_paused = true)]
async fn an_event_that_has_begun_leaves_no_mark_behind() {
    let (store, job) = (memory::store(), Steps::default());
    let machines = ["vm_0", "vm_1"].map(|name| (name, machine(&store, &job, name, Approve::Leader)));
    sleep(secs(20)).await;
    let of = |name: &str| event(NoticeKind::Terminate, 600).of(["vm_0", "vm_1"], name);
    for (name, machine) in &machines {
        machine.notices.notice(of(name));
    }
    within(secs(10), "an approval", async || !machines[0].1.notices.approved().is_empty()).await;
    for (name, machine) in &machines {
        machine.notices.notice(started(of(name)));
    }
    sleep(secs(10)).await;
    for (_, machine) in &machines {
        machine.notices.over(&NoticeId::new("event"), Ending::Completed);
    }
    within(secs(10), "no mark is left", async || marks(&store).await == 0).await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_works_again_is_not_ready_any_more() {
    let (store, job) = (memory::store(), Steps::default());
    let leader = machine(&store, &job, "vm_0", Approve::Leader);
    let other = machine(&store, &job, "vm_1", Approve::Leader);
    sleep(secs(20)).await;
    let reboot = |notice_s, name: &str| event(NoticeKind::Reboot, notice_s).of(["vm_0", "vm_1"], name);
    other.notices.notice(reboot(14, "vm_1"));
    within(secs(10), "its mark", async || marks(&store).await == 1).await;
    // The event is postponed, and both continue. Then the leader sees an earlier time than the
    // other worker, and drains.
    other.notices.notice(reboot(3600, "vm_1"));
    within(secs(10), "no mark is left", async || marks(&store).await == 0).await;
    enqueue(&store, &[Plan::new(100, 1000)]).await;
    sleep(secs(10)).await;
    leader.notices.notice(reboot(14, "vm_0"));
    sleep(secs(60)).await;
    assert_eq!(leader.notices.approved(), []);
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_works_again_approves_nothing_when_the_others_are_ready_at_last() {
    let (store, job) = (memory::store(), Steps::default());
    let notices = ManualNotices::answered();
    let policy = Policy { approve: Approve::Leader, approve_wait: secs(3600), ..Policy::default() };
    let worker = Worker::builder(store.clone()).job(job.clone()).vm("vm_0").settings(with(policy));
    let worker = worker.interruptions(Arc::new(notices.clone())).build().unwrap();
    let (monitor, (_stopper, stopping)) = (worker.monitor(), stopping());
    tokio::spawn(worker.run(stopping));
    monitor.reached(Stage::Start).await;
    notices.notice(event(NoticeKind::Terminate, 10).of(["vm_0", "vm_1"], "vm_0"));
    sleep(secs(1900)).await;
    assert_eq!(monitor.stage(), Stage::Start, "the worker has survived the event");
    let other = machine(&store, &job, "vm_1", Approve::Leader);
    tell(&other, "vm_1", &["vm_0", "vm_1"]);
    sleep(secs(600)).await;
    assert_eq!(notices.approved(), []);
}

#[tokio::test(start_paused = true)]
async fn an_event_that_comes_to_name_another_machine_is_not_approved_for_the_old_ones() {
    // The change comes at every moment around the one at which the last mark is seen.
    for hops in 0..24 {
        let (store, faults) = Faults::wrap(memory::store());
        let job = Steps::default();
        let leader = machine(&store, &job, "vm_0", Approve::Leader);
        let other = machine(&store, &job, "vm_1", Approve::Leader);
        sleep(secs(20)).await;
        faults.every_call(Op::List, Fault::Hang);
        let listed = faults.calls(Op::List);
        tell(&leader, "vm_0", &["vm_0", "vm_1"]);
        tell(&other, "vm_1", &["vm_0", "vm_1"]);
        faults.called(Op::List, listed + 1).await;
        sleep(ms(100)).await;
        tell(&leader, "vm_0", &["vm_0", "vm_1", "vm_2"]);
        for _ in 0..hops {
            tokio::task::yield_now().await;
        }
        faults.clear(Op::List);
        let before = leader.notices.approved().len();
        sleep(secs(60)).await;
        assert_eq!(leader.notices.approved().len(), before, "after {hops} turns");
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_that_was_approved_is_not_approved_again_when_its_time_is_moved() {
    for approve in [Approve::Sole, Approve::Leader] {
        let (store, job) = (memory::store(), Steps::default());
        let leader = machine(&store, &job, "vm_0", approve);
        let set: &[&str] = if approve == Approve::Sole { &["vm_0"] } else { &["vm_0", "vm_1"] };
        let _other = (approve == Approve::Leader).then(|| {
            let other = machine(&store, &job, "vm_1", approve);
            tell(&other, "vm_1", set);
            other
        });
        tell(&leader, "vm_0", set);
        within(secs(30), "an approval", async || !leader.notices.approved().is_empty()).await;
        for notice_s in [590, 580, 300] {
            let again = event(NoticeKind::Terminate, notice_s).of(set.iter().copied(), "vm_0");
            leader.notices.notice(again);
            sleep(secs(10)).await;
        }
        assert_eq!(leader.notices.approved().len(), 1, "{approve:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_of_one_machine_waits_for_every_worker_on_it() {
    let (store, job) = (memory::store(), Steps::default());
    enqueue(&store, &[Plan::new(40, 1000)]).await;
    let busy = machine(&store, &job, "vm_0", Approve::Sole);
    sleep(secs(20)).await;
    let idle = machine(&store, &job, "VM_0", Approve::Sole);
    sleep(secs(1)).await;
    tell(&busy, "vm_0", &["vm_0"]);
    tell(&idle, "vm_0", &["vm_0"]);
    sleep(secs(10)).await;
    assert_eq!((idle.notices.approved(), busy.notices.approved()), (vec![], vec![]));
    assert_eq!(total(&store).await, 1, "the job is allowed to finish");
    within(secs(30), "an approval", async || !idle.notices.approved().is_empty()).await;
    assert_eq!(total(&store).await, 0);
}

/// A worker on the first machine's present boot, which does not know its machine's name.
fn unnamed(
    store: &Store,
    job: &Steps,
    boot: &str,
    notices: &ManualNotices,
) -> reprieve_core::worker::Stopper {
    let policy = Policy { approve: Approve::Leader, ..Policy::default() };
    let worker = Worker::builder(store.clone()).job(job.clone()).boot(boot);
    let worker = worker.settings(with(policy)).interruptions(Arc::new(notices.clone())).build().unwrap();
    let (stopper, stopping) = stopping();
    tokio::spawn(worker.run(stopping));
    stopper
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_does_not_know_its_machine_is_waited_for_if_it_runs_on_the_same_boot() {
    for (boot, waits) in [("this-boot", true), ("another", false), ("", false)] {
        let (store, job) = (memory::store(), Steps::default());
        let notices = ManualNotices::answered();
        let worker = Worker::builder(store.clone()).job(job.clone()).vm("vm_0").boot("this-boot");
        let worker =
            worker.settings(saving_never()).interruptions(Arc::new(notices.clone())).build().unwrap();
        let (_stopper, stopping) = stopping();
        tokio::spawn(worker.run(stopping));
        let unheard = ManualNotices::answered();
        let _other = unnamed(&store, &job, boot, &unheard);
        sleep(secs(20)).await;
        notices.notice(event(NoticeKind::Terminate, 600).of(["vm_0"], "vm_0"));
        sleep(secs(60)).await;
        assert_eq!(notices.approved().is_empty(), waits, "{boot:?}");
        // Once it has heard of the event and is ready, the event is approved.
        unheard.notice(event(NoticeKind::Terminate, 540).of(["vm_0"], "vm_0"));
        within(secs(20), "an approval", async || !notices.approved().is_empty()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_reaches_the_roster_as_soon_as_it_is_known() {
    let (store, job) = (memory::store(), Steps::default());
    let notices = ManualNotices::answered();
    let _worker = unnamed(&store, &job, "boot", &notices);
    sleep(secs(20)).await;
    let vm = async || store.roster.members(secs(60)).await.unwrap().remove(0).vm;
    assert_eq!(vm().await, "");
    notices.named("vm_3");
    within(secs(15), "the name", async || vm().await == "vm_3").await;
}

#[tokio::test(start_paused = true)]
async fn an_unnamed_worker_on_another_machine_is_placed_by_a_named_one_of_its_boot() {
    let (store, job) = (memory::store(), Steps::default());
    let leader = machine(&store, &job, "vm_0", Approve::Leader);
    let notices = ManualNotices::answered();
    let named = Worker::builder(store.clone()).job(job.clone()).vm("vm_1").boot("boot-1");
    let policy = Policy { approve: Approve::Leader, ..Policy::default() };
    let named = named.settings(with(policy)).interruptions(Arc::new(notices.clone())).build().unwrap();
    let (_stopper, stopping) = stopping();
    tokio::spawn(named.run(stopping));
    let unheard = ManualNotices::answered();
    let _unnamed = unnamed(&store, &job, "boot-1", &unheard);
    sleep(secs(20)).await;
    let both = ["vm_0", "vm_1"];
    tell(&leader, "vm_0", &both);
    notices.notice(event(NoticeKind::Terminate, 600).of(both, "vm_1"));
    sleep(secs(60)).await;
    assert_eq!(leader.notices.approved(), [], "the unnamed worker on vm_1 has not heard of it");
    unheard.notice(event(NoticeKind::Terminate, 540).of(both, "vm_1"));
    within(secs(20), "an approval", async || !leader.notices.approved().is_empty()).await;
}
