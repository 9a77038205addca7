//! Tests of where messages are sent.

use std::collections::BTreeMap;

use super::*;

#[tokio::test(start_paused = true)]
async fn sending_spreads_evenly_and_keeps_together_what_is_received_together() {
    for (calls, each) in [(1, 10_000), (10, 1000), (10_000, 1), (313, 32)] {
        let queues = in_memory(8);
        let joined = join(queues.clone(), 9);
        for _ in 0..calls {
            assert_eq!(joined.send(messages(each)).await.unwrap().len(), each);
        }
        let mut depths = Vec::new();
        for queue in &queues {
            depths.push(total(&**queue).await);
        }
        let (least, most) = (depths.iter().min().unwrap(), depths.iter().max().unwrap());
        assert!(most - least <= 160, "{calls} sends of {each} messages gave {depths:?}");
    }
    let (queues, faults): (Vec<_>, Vec<_>) = (0..8).map(faulty).unzip();
    join(queues, 9).send(messages(10_000)).await.unwrap();
    let sends: u64 = faults.iter().map(|faults| faults.calls(Op::Send)).sum();
    assert!(sends <= 10, "{sends} sends of 10,000 messages to 8 shards");
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_takes_nothing_gets_its_messages_sent_to_another() {
    let (queues, faults): (Vec<_>, Vec<_>) = (0..4).map(faulty).unzip();
    let joined = join(queues.clone(), 1);
    faults[2].every_call(Op::Send, Fault::Fail(ErrorKind::Unavailable));
    let ids = joined.send(messages(400)).await.unwrap();
    assert_eq!(ids.len(), 400);
    assert_eq!((total(&joined).await, total(&*queues[2]).await), (400, 0));
    for _ in 0..100 {
        joined.send(messages(4)).await.unwrap();
    }
    assert!(faults[2].calls(Op::Send) <= 2, "it is the last choice for a while");

    let mut bodies = BTreeMap::new();
    for _ in 0..40 {
        for delivery in joined.receive(32, LEASE).await.unwrap() {
            bodies.insert(delivery.id, delivery.body);
        }
    }
    for (at, id) in ids.iter().enumerate() {
        assert_eq!(bodies[id], at.to_string().into_bytes(), "ids are in the order of the messages");
    }

    tokio::time::sleep(Duration::from_secs(11)).await;
    faults[2].clear_all();
    joined.send(messages(400)).await.unwrap();
    assert!(total(&*queues[2]).await >= 100, "it has its turn again");
}

#[tokio::test(start_paused = true)]
async fn a_partial_send_reports_partial_and_never_unapplied() {
    for (kind, reported) in
        [(ErrorKind::TimedOut, ErrorKind::TimedOut), (ErrorKind::Denied, ErrorKind::Denied)]
    {
        let (queues, faults): (Vec<_>, Vec<_>) = (0..4).map(faulty).unzip();
        let joined = join(queues.clone(), 1);
        faults[2].every_call(Op::Send, Fault::Fail(kind));
        let error = joined.send(messages(400)).await.unwrap_err();
        assert_eq!(error.kind(), reported);
        let sent = total(&joined).await;
        assert!(error.to_string().contains(&format!("{sent} of 400 messages were sent")), "{error}");
        assert!(error.to_string().contains("queue work-2"), "{error}");
    }

    // Each shard accepts its first run, late, and is busy afterwards.
    let (queues, faults): (Vec<_>, Vec<_>) = (0..2).map(faulty).unzip();
    let joined = join(queues, 1);
    for faults in &faults {
        faults.next_calls(Op::Send, 1, Fault::Delay(Duration::from_secs(1)));
        faults.every_call(Op::Send, Fault::Fail(ErrorKind::Unavailable));
    }
    let error = joined.send(messages(400)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");

    let nothing = joined.send(messages(400)).await.unwrap_err();
    assert_eq!(nothing.kind(), ErrorKind::Unavailable, "{nothing}");
}
