//! Tests of the order in which a receive asks the shards.

use std::collections::{BTreeMap, BTreeSet};

use rand::{Rng as _, SeedableRng as _};
use tokio::time::Instant;

use super::*;

/// The one message of every quiet shard is received, however many messages the busy ones have.
#[tokio::test(start_paused = true)]
async fn no_shard_starves_however_busy_the_others_are() {
    for seed in 0..60 {
        println!("seed {seed}");
        let mut random = rand::rngs::SmallRng::seed_from_u64(seed);
        let shards = random.random_range(2..=16);
        let busy = random.random_range(1..shards);
        let max = random.random_range(1..=32);
        let queues = in_memory(shards);
        let joined = join(queues.clone(), seed);
        // Gives the quiet shards a history.
        for _ in 0..random.random_range(0..50) {
            joined.receive(max, LEASE).await.unwrap();
        }
        for queue in &queues[busy..] {
            queue.send(messages(1)).await.unwrap();
        }
        let mut receives = 0;
        while total(&joined).await > 0 {
            for queue in &queues[..busy] {
                queue.send(messages(max)).await.unwrap();
            }
            receives += 1;
            for delivery in joined.receive(max, LEASE).await.unwrap() {
                joined.complete(&delivery.receipt).await.unwrap();
            }
            let mut left = 0;
            for queue in &queues[busy..] {
                left += total(&**queue).await;
            }
            if left == 0 {
                break;
            }
            let bound = Shards::REACHED_IN_RECEIVES * shards;
            assert!(receives < bound, "{left} shards of {shards} not reached in {receives} receives");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_is_always_full_costs_few_looks_at_seven_empty_ones() {
    let (queues, faults): (Vec<_>, Vec<_>) = (0..8).map(faulty).unzip();
    let joined = join(queues.clone(), 3);
    for round in 0..1000 {
        queues[5].send(messages(32)).await.unwrap();
        // The first receive may have asked other shards.
        let got = joined.receive(32, LEASE).await.unwrap();
        assert!(!got.is_empty() || round == 0, "round {round}");
        for delivery in got {
            joined.complete(&delivery.receipt).await.unwrap();
        }
        tokio::time::advance(Duration::from_millis(20)).await;
    }
    let looks: u64 = faults.iter().map(|faults| faults.calls(Op::Receive)).sum();
    assert!((1000..1300).contains(&looks), "{looks} looks for 1,000 batches");
}

#[tokio::test(start_paused = true)]
async fn shards_that_are_all_full_give_alike() {
    let queues = in_memory(8);
    let joined = join(queues.clone(), 11);
    let mut given = BTreeMap::new();
    for _ in 0..800 {
        for queue in &queues {
            queue.send(messages(4)).await.unwrap();
        }
        for delivery in joined.receive(4, LEASE).await.unwrap() {
            *given.entry(delivery.id.as_str()[..6].to_owned()).or_insert(0) += 1;
            joined.complete(&delivery.receipt).await.unwrap();
        }
    }
    assert_eq!(given.len(), 8);
    assert!(given.values().all(|given| (360..=440).contains(given)), "{given:?}");
}

#[tokio::test(start_paused = true)]
async fn workers_begin_at_different_shards() {
    let mut firsts = BTreeSet::new();
    for seed in 0..40 {
        let queues = in_memory(8);
        for queue in &queues {
            queue.send(messages(1)).await.unwrap();
        }
        let first = join(queues, seed).receive(1, LEASE).await.unwrap().remove(0);
        firsts.insert(first.id);
    }
    assert!(firsts.len() >= 6, "40 workers began at {firsts:?}");
}

/// An idle worker receives every ten seconds.
#[tokio::test(start_paused = true)]
async fn an_idle_worker_looks_at_a_third_of_the_shards_and_at_each_within_three_receives() {
    for shards in [1, 2, 3, 8, 64] {
        let (queues, faults): (Vec<_>, Vec<_>) = (0..shards).map(faulty).unzip();
        let joined = join(queues, 5);
        let calls = || faults.iter().map(|faults| faults.calls(Op::Receive)).collect::<Vec<_>>();
        for _ in 0..3 {
            tokio::time::advance(Duration::from_secs(10)).await;
            joined.receive(32, LEASE).await.unwrap();
        }
        for _ in 0..20 {
            let before = calls();
            for _ in 0..3 {
                tokio::time::advance(Duration::from_secs(10)).await;
                joined.receive(32, LEASE).await.unwrap();
            }
            let looks: Vec<_> = calls().iter().zip(before).map(|(after, before)| after - before).collect();
            assert!(looks.iter().all(|looks| *looks >= 1), "{looks:?}");
            assert!(looks.iter().sum::<u64>() <= shards as u64 + 2, "{looks:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_worker_polls_a_shard_with_an_announced_message_first() {
    let queues = in_memory(64);
    let joined = join(queues.clone(), 7);
    joined.receive(1, LEASE).await.unwrap();
    for at in [63, 0, 17, 40] {
        tokio::time::advance(Duration::from_secs(100)).await;
        joined.receive(1, LEASE).await.unwrap();
        queues[at].send(messages(1)).await.unwrap();
        joined.arrived().await;
        let found = joined.receive(1, LEASE).await.unwrap();
        assert_eq!(found.len(), 1, "in shard {at}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_fails_hides_nothing_and_is_asked_ever_more_rarely() {
    for fault in [Fault::Fail(ErrorKind::Unavailable), Fault::Fail(ErrorKind::Denied), Fault::Hang] {
        let (queues, faults): (Vec<_>, Vec<_>) = (0..3).map(faulty).unzip();
        let joined = join(queues.clone(), 1);
        faults[1].every_call(Op::Receive, fault);
        for round in 0..600 {
            queues[round % 2 * 2].send(messages(1)).await.unwrap();
            let got = joined.receive(32, LEASE).await.unwrap();
            assert_eq!(got.len(), 1, "{fault:?}, round {round}");
            joined.complete(&got[0].receipt).await.unwrap();
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let asked = faults[1].calls(Op::Receive);
        assert!((10..=22).contains(&asked), "asked {asked} times in ten minutes");

        faults[1].clear_all();
        queues[1].send(messages(1)).await.unwrap();
        tokio::time::sleep(Duration::from_secs(76)).await;
        let mut got = 0;
        for _ in 0..3 {
            got += joined.receive(32, LEASE).await.unwrap().len();
        }
        assert_eq!(got, 1, "it is asked again when it answers");
    }
}

/// Three of four shards do not answer at all. The first receives from them cost ten seconds each;
/// after that the fourth has nearly all of the time.
#[tokio::test(start_paused = true)]
async fn shards_that_hang_leave_most_of_the_time_to_the_others() {
    let (queues, faults): (Vec<_>, Vec<_>) = (0..4).map(faulty).unzip();
    let joined = join(queues.clone(), 1);
    for faults in &faults[1..] {
        faults.every_call(Op::Receive, Fault::Hang);
    }
    let began = Instant::now();
    let mut waited = Duration::ZERO;
    while began.elapsed() < Duration::from_mins(10) {
        queues[0].send(messages(1)).await.unwrap();
        let asked = Instant::now();
        // At first, all shards that are asked may be silent.
        let got = joined.receive(32, LEASE).await.unwrap_or_default();
        if began.elapsed() > Duration::from_mins(1) {
            waited += asked.elapsed();
        }
        if let Some(got) = got.first() {
            joined.complete(&got.receipt).await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(waited < Duration::from_mins(9) / 5, "{waited:?} of nine minutes were waited for silent shards");
}

#[tokio::test(start_paused = true)]
async fn when_every_shard_fails_so_does_the_receive_and_all_are_back_when_one_is() {
    let (queues, faults): (Vec<_>, Vec<_>) = (0..6).map(faulty).unzip();
    let joined = join(queues.clone(), 1);
    for faults in &faults {
        faults.every_call(Op::Receive, Fault::Fail(ErrorKind::Unavailable));
    }
    for _ in 0..100 {
        let error = joined.receive(32, LEASE).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains("queue work-"), "{error}");
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
    for (queue, faults) in queues.iter().zip(&faults) {
        faults.clear_all();
        queue.send(messages(1)).await.unwrap();
    }
    let mut got = 0;
    for _ in 0..8 {
        got += joined.receive(32, LEASE).await.unwrap().len();
    }
    assert_eq!(got, 6);
}

#[tokio::test(start_paused = true)]
async fn a_failing_shard_with_messages_is_no_reason_to_wake_up_for() {
    let (store, faults) = Faults::wrap(memory::store());
    let loud: Arc<dyn Queue> = Arc::new(MemoryQueue::new());
    loud.send(messages(1)).await.unwrap();
    // It signals a message, and does not return it.
    let deaf = Arc::new(Deaf(loud));
    let joined = join([deaf as Arc<dyn Queue>, Arc::clone(&store.queue)], 2);
    let _ = joined.receive(1, LEASE).await;
    let _ = joined.receive(1, LEASE).await;
    let began = Instant::now();
    for _ in 0..20 {
        joined.arrived().await;
        let _ = joined.receive(1, LEASE).await;
    }
    assert!(began.elapsed() >= Duration::from_mins(10), "20 wakes in {:?}", began.elapsed());
    drop(faults);
}
