//! The roster: its age is counted on the service's clock, and a look at its members is one request.

use std::time::Duration;

use reprieve_core::WorkerId;
use reprieve_core::clock;
use reprieve_core::ports::{Member, WorkerReport};
use reprieve_sim::storage::Operation;

use crate::support::{Shop, double_with_the_right_clock, open, runtime};

fn report(worker: &str, kinds: usize) -> WorkerReport {
    WorkerReport {
        queue: "work".to_owned(),
        kinds: (0..kinds).map(|kind| format!("größe-{kind}")).collect(),
        vm: "spot_7".to_owned(),
        boot: "4d0c".to_owned(),
        pid: 7,
        stage: "start".to_owned(),
        ..WorkerReport::new(WorkerId::new(worker))
    }
}

#[tokio::test]
async fn the_members_of_a_fleet_are_listed_by_one_request() {
    let shop = Shop::open().await;
    let roster = &shop.store.roster;
    let mut reports: Vec<_> = (0..300).map(|worker| report(&format!("{worker:03}"), 3)).collect();
    // Its kinds are too long for metadata.
    reports.push(report("much", 1_000));
    for report in &reports {
        roster.publish(report).await.unwrap();
    }
    shop.double.reset_counts();
    let members = roster.members(Duration::from_secs(60)).await.unwrap();
    assert_eq!(members, reports.iter().map(Member::from).collect::<Vec<_>>());
    assert_eq!((shop.requests(Operation::BlobList), shop.requests(Operation::BlobGet)), (1, 1));
}

#[test]
fn a_clock_that_is_wrong_makes_no_worker_look_dead() {
    let double = double_with_the_right_clock();
    runtime().block_on(async {
        let minutes = Duration::from_mins(5);
        for wrong in [clock::wall_now() + minutes, clock::wall_now() - minutes] {
            clock::simulate(wrong);
            let roster = open(&double).await.unwrap().store().roster;
            roster.publish(&report("a", 1)).await.unwrap();
            let recent = Duration::from_secs(45);
            assert_eq!(roster.reports(recent).await.unwrap().len(), 1);
            assert_eq!(roster.members(recent).await.unwrap().len(), 1);
            tokio::time::sleep(Duration::from_secs(3)).await;
            assert_eq!(roster.reports(Duration::from_secs(1)).await.unwrap().len(), 0, "it is old");
        }
    });
}
