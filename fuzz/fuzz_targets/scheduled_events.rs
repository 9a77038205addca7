//! Sequences of answers of the metadata service, as bytes: nothing panics, nobody who follows the changes is led astray.
//!
//! Each line is one answer: a digit that chooses the api-version, then the body.

#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use reprieve_azure::scheduled_events::document::{Document, EventType};
use reprieve_azure::scheduled_events::{Answer, ApiVersion, Compute, EventChange, NotBefore, Standing, What, Whose};
use reprieve_core::{NoticeId, Phase};

const ME: &str = "me_0";

/// What a subscriber knows by what it was told.
type Known = BTreeMap<(Whose, NoticeId), EventChange>;

fuzz_target!(|data: &[u8]| {
    let mut standing = Standing::default();
    let mut known = Known::new();
    for line in data.split(|byte| *byte == b'\n') {
        let Some((version, body)) = line.split_first() else { continue };
        let version = ApiVersion::ALL[usize::from(*version) % ApiVersion::ALL.len()];
        let _: Option<Compute> = Compute::read(body).ok();
        let Ok(document) = Document::read_as(version, body) else { continue };
        reads_what_it_writes(&document);
        let answer = Answer::now(document, version);
        for change in standing.update(&answer, ME) {
            follow(&mut known, change);
        }
        let told: Vec<_> = known.iter().map(|((whose, _), change)| (*whose, change.event.clone())).collect();
        let stands: Vec<_> = standing.changes().map(|change| (change.whose, change.event)).collect();
        assert_eq!(told, stands);
        assert_eq!(standing.update(&answer, ME), [], "the same answer again changes nothing");
        only_what_may_be_is_approved(&standing, &answer.document);
    }
});

fn reads_what_it_writes(document: &Document) {
    let written = serde_json::to_vec(document).expect("a document can be written");
    // Without the incarnation, because JSON's fractions are not read to the last bit.
    assert_eq!(Document::read(&written).expect("what was written is read").events, document.events);
    for event in &document.events {
        if let NotBefore::At(at) = NotBefore::read(&event.not_before)
            && let Some(text) = NotBefore::write(at)
        {
            assert!(matches!(NotBefore::read(&text), NotBefore::At(_)), "{text:?}");
        }
    }
}

fn follow(known: &mut Known, change: EventChange) {
    serde_json::to_string(&change).expect("a change can be written");
    let key = (change.whose, change.id());
    let before = known.get(&key).map(|before| before.event.event_status.phase());
    let now = change.event.event_status.phase();
    match change.what {
        What::Noticed => assert_eq!((before, now), (None, Phase::Scheduled)),
        What::Started => assert!(before != Some(Phase::Started) && now == Phase::Started),
        What::Changed => assert!(before.is_some()),
        What::Withdrawn => assert_eq!(before, Some(Phase::Scheduled)),
        What::Completed => assert_eq!(before, Some(Phase::Started)),
    }
    if change.what.is_over() {
        known.remove(&key);
    } else {
        known.insert(key, change);
    }
}

fn only_what_may_be_is_approved(standing: &Standing, document: &Document) {
    for event in &document.events {
        if let Ok(Some(id)) = standing.approval(&event.notice_id()) {
            let is_it = |change: &EventChange| change.whose == Whose::This && change.event.event_id == id;
            let mut found = standing.changes().filter(is_it);
            assert!(found.any(|change| change.event.event_type != EventType::SpotRebalanceRecommendation));
        }
    }
}
