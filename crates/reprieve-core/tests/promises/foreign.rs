//! Messages of other senders are jobs like any other: they survive evictions, and unusable ones are
//! dead-lettered.

use reprieve_core::memory::{self, ManualNotices};
use reprieve_core::ports::{NewMessage, Store};
use reprieve_core::worker::Settings;
use serde_json::{Value, json};

use crate::support::*;

const STEPS: u32 = 40;

fn plan() -> Plan {
    Plan::new(STEPS, 500)
}

fn grid_event() -> Value {
    json!({
        "topic": "/subscriptions/4a5b/resourceGroups/rg/providers/Microsoft.EventGrid/topics/work",
        "subject": "zoom/7", "eventType": "steps", "id": "831e1650-001e-001b-66ab-eeb76e069631",
        "eventTime": "2026-06-26T18:41:00.9584103Z", "data": plan(), "dataVersion": "2.0", "metadataVersion": "1",
    })
}

fn cloud_event() -> Value {
    json!({
        "specversion": "1.0", "source": "/topics/work", "subject": "zoom/7", "type": "steps", "id": "831e1650",
        "time": "2026-06-26T18:41:00.9584103Z", "datacontenttype": "application/json",
        "data_base64": base64(&serde_json::to_vec(&plan()).unwrap()), "traceparent": "00-ab-cd-01",
    })
}

fn base64(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

/// Returns the ends of deliveries in a body.
fn ends(body: &[u8]) -> Vec<Value> {
    let body: Value = serde_json::from_slice(body).unwrap();
    serde_json::from_str(body["reprieveends"].as_str().unwrap()).unwrap()
}

async fn send(store: &Store, body: impl Into<Vec<u8>>) {
    store.queue.send(vec![NewMessage { body: body.into(), delay: secs(0) }]).await.unwrap();
}

fn start_with_default(store: &Store, job: &Steps) -> Running {
    let fallback = Settings { default_kind: Some("steps".to_owned()), ..settings() };
    start_with(store, job, fallback, ManualNotices::answered())
}

#[tokio::test(start_paused = true)]
async fn a_foreign_message_goes_on_after_evictions_where_it_was() {
    for body in [
        grid_event().to_string().into_bytes(),
        base64(grid_event().to_string().as_bytes()).into_bytes(),
        json!([grid_event()]).to_string().into_bytes(),
        cloud_event().to_string().into_bytes(),
        json!(plan()).to_string().into_bytes(),
        base64(json!(plan()).to_string().as_bytes()).into_bytes(),
    ] {
        let (store, job) = (memory::store(), Steps::default());
        send(&store, body.clone()).await;
        for round in 1..4_u32 {
            let worker = start_with_default(&store, &job);
            tokio::time::sleep(secs(4)).await;
            worker.evict(secs(30)).await;
            worker.kill().await;
            let held = store.queue.receive(1, ms(1)).await.unwrap();
            let ends = ends(&held[0].body);
            assert_eq!(
                (ends[0]["count"].clone(), ends[0]["how"].clone()),
                (json!(held[0].dequeue_count - 1), json!("interrupted"))
            );
            assert_eq!(ends.len(), 1, "round {round}: all others are in the record");
            tokio::time::sleep(ms(2)).await;
        }
        let _last = start_with_default(&store, &job);
        emptied(&store, secs(60)).await;
        assert_eq!(poisoned(&store).await, Vec::<String>::new());
        assert_eq!(job.trace.redone(), 0, "the job resumed at its checkpoints");
        let results = store.blobs.list("results/").await.unwrap();
        assert_eq!(results.len(), 1, "it is one job: {results:?}");
        assert_eq!(store.blobs.get(&results[0]).await.unwrap(), Some(STEPS.to_string().into_bytes()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_released_foreign_message_keeps_all_of_its_senders_content() {
    for sent in [grid_event(), cloud_event()] {
        let (store, job) = (memory::store(), Steps::default());
        send(&store, sent.to_string()).await;
        let worker = start(&store, &job);
        tokio::time::sleep(secs(4)).await;
        worker.evict(secs(30)).await;
        let held = store.queue.receive(1, secs(60)).await.unwrap();
        let mut left: Value = serde_json::from_slice(&held[0].body).unwrap();
        assert!(left.as_object_mut().unwrap().remove("reprieveends").is_some());
        assert_eq!(left, sent);
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_no_single_utf8_event_is_dead_lettered_unchanged_with_advice() {
    let utf16: Vec<u8> = grid_event().to_string().encode_utf16().flat_map(u16::to_le_bytes).collect();
    for (body, reason) in [
        (json!([grid_event(), cloud_event()]).to_string().into_bytes(), "send each in a message of its own"),
        (utf16.clone(), "send it as UTF-8"),
        (base64(&utf16).into_bytes(), "encode it as UTF-8 first"),
        (json!({"eventType": "steps", "data": plan()}).to_string().into_bytes(), "no default kind"),
    ] {
        let store = memory::store();
        send(&store, body.clone()).await;
        let _worker = start(&store, &Steps::default());
        emptied(&store, secs(15)).await;
        let letters = store.queue.dead_letters(2).await.unwrap();
        let reason_given = letters[0].reason.clone().unwrap();
        assert!(reason_given.contains(reason), "{reason_given:?} does not contain {reason:?}");
        assert!(letters[0].body == body, "the body is kept");
    }
}
