//! An event for several machines.

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
async fn nobody_approves_unless_that_is_set() {
    let (store, job) = (memory::store(), Steps::default());
    let machines = SET.map(|name| machine(&store, &job, name, Approve::Sole));
    for (machine, name) in machines.iter().zip(SET) {
        tell(machine, name, &SET);
    }
    sleep(secs(600)).await;
    assert!(machines.iter().all(|machine| machine.notices.acknowledged().is_empty()));
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
    within(secs(120), "an approval", async || !leader.notices.acknowledged().is_empty()).await;
    assert_eq!(total(&store).await, 0, "the job was left to finish");
    assert!(began.elapsed() > secs(60), "not before the busy one is ready: {:?}", began.elapsed());
    sleep(secs(60)).await;
    assert_eq!(leader.notices.acknowledged().len(), 1);
    assert_eq!((third.notices.acknowledged(), busy.notices.acknowledged()), (vec![], vec![]));
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
    assert_eq!(leader.notices.acknowledged(), []);
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
    assert_eq!(leader.notices.acknowledged(), []);
    tell(&second, "vm_1", &["vm_0", "vm_1"]);
    within(secs(10), "an approval", async || !leader.notices.acknowledged().is_empty()).await;
}
