//! Claims: of any number of machines that want one, no more get it than may, and that of a machine that died is free
//! again after its lease.

use std::sync::Arc;

use futures_util::future::join_all;
use reprieve_core::memory::{self, Fault, Faults};
use reprieve_core::ports::Store;
use reprieve_core::process::Gate;
use reprieve_core::worker::{Claim, Claims};
use reprieve_core::{ErrorKind, WorkerId};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use crate::support::*;

/// The claims for a worker of this machine.
fn claims(store: &Store, machine: &str) -> Claims {
    Claims::new(store, machine, &WorkerId::unique())
}

#[tokio::test(start_paused = true)]
async fn of_fifty_that_ask_at_once_no_more_get_a_claim_than_may() {
    on_one_clock();
    for count in [1, 3] {
        let store = memory::store();
        let all: Vec<_> = (0..50).map(|number| claims(&store, &format!("vm {number}"))).collect();
        let mut held: Vec<Claim> = Vec::new();
        for _ in 0..20 {
            held.extend(join_all(all.iter().map(|claims| claims.take(count))).await.into_iter().flatten());
            assert!(held.len() <= count, "{} of {count}", held.len());
            sleep(secs(10)).await;
        }
        assert_eq!(held.len(), count);
        drop(held.pop());
        sleep(secs(5)).await;
        assert!(all[0].take(count).await.is_some(), "one that is released is free");
    }
}

#[tokio::test(start_paused = true)]
async fn the_claim_of_a_machine_that_died_is_free_after_its_lease_and_not_before() {
    on_one_clock();
    let store = memory::store();
    let (gate, (took, is_taken)) = (Gate::new(), oneshot::channel());
    let ones = Arc::new(claims(&store, "one"));
    let holder = tokio::spawn(gate.clone().run(async move {
        let claim = ones.take(1).await.expect("it is free");
        took.send(()).unwrap();
        sleep(secs(86_400)).await;
        drop(claim);
    }));
    is_taken.await.unwrap();
    let another = claims(&store, "another");
    for _ in 0..60 {
        sleep(secs(60)).await;
        assert!(another.take(1).await.is_none(), "its holder lives");
    }
    gate.freeze();
    let died = Instant::now();
    let taken = loop {
        if let Some(claim) = another.take(1).await {
            break claim;
        }
        sleep(secs(10)).await;
        assert!(died.elapsed() < secs(1_200), "it is never free");
    };
    // It was renewed up to 200 s before its holder died, and is seen for the first time after that.
    assert!((secs(395)..secs(700)).contains(&died.elapsed()), "{:?}", died.elapsed());
    drop(taken);
    holder.abort();
}

#[tokio::test(start_paused = true)]
async fn the_other_workers_of_a_machine_know_its_claim_while_it_is_renewed_and_no_other_s() {
    on_one_clock();
    let store = memory::store();
    let [one, same, other] = ["one", "one", "other"].map(|machine| claims(&store, machine));
    let known = async || {
        let known = [&one, &same, &other].map(Claims::is_held_by_another_worker);
        join_all(known).await.into_iter().map(Result::unwrap).collect::<Vec<_>>()
    };
    assert_eq!(known().await, [false, false, false]);
    // Of three that may be held, while others think of one.
    let claim = one.take(3).await.expect("it is free");
    for _ in 0..30 {
        assert_eq!(known().await, [false, true, false]);
        sleep(secs(60)).await;
    }
    drop(claim);
    sleep(secs(5)).await;
    assert_eq!(known().await, [false, false, false]);
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_was_lost_in_an_outage_is_nobody_s_after_it_and_its_worker_releases_the_rest() {
    on_one_clock();
    let (store, faults) = Faults::wrap(memory::store());
    let [one, same, other] = ["one", "one", "other"].map(|machine| claims(&store, machine));
    let claim = one.take(1).await.expect("it is free");
    // The last renewal before the outage is one that no other worker has seen.
    sleep(secs(250)).await;
    faults.everything(Fault::Fail(ErrorKind::Unavailable));
    sleep(secs(700)).await;
    assert!(claim.is_lost());
    drop(claim);
    // Its release gives up while the store is away.
    sleep(secs(60)).await;
    faults.clear_all();
    assert!(!same.is_held_by_another_worker().await.unwrap(), "by the store's clock it is old");
    assert!(other.take(1).await.is_none(), "it was not seen to be old");
    sleep(secs(5)).await;
    assert!(!one.is_held_by_another_worker().await.unwrap());
    assert!(other.take(1).await.is_some(), "it is released");
}
