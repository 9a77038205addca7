//! Damage to what a store keeps is noticed: no changed bit and no missing byte passes for progress.

use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _};

use super::Fixture;
use crate::child_ids::GivenBefore;
use crate::ids::{JobId, MessageId, PayloadName, WorkerId};
use crate::ports::{Payload, RecordStore, RecordWrite};
use crate::record::{
    Account, Checkpoint, Chunk, Company, ContentHash, Owner, Part, Place, Record, Status, Unreadable, open,
    seal,
};

/// How many damaged objects are written and read at once.
const AT_ONCE: usize = 16;

fn id(number: usize) -> JobId {
    JobId::parse(format!("damaged-{number}")).expect("the suite's job ids are valid")
}

fn payload(number: usize) -> PayloadName {
    PayloadName::new(0, &MessageId::new("m"), 1, number as u64)
}

/// A part of a checkpoint that consists of `bytes`, which are inside the record.
fn part(bytes: &[u8]) -> Part {
    Part { bytes: bytes.len() as u64, sha256: ContentHash::of(bytes), place: Place::Inside(bytes.to_vec()) }
}

/// A short record with one checkpoint.
fn record() -> Record {
    let state = part(b"a state");
    Record {
        job: id(0),
        kind: "k".to_owned(),
        generation: 0,
        owner: Owner {
            message: MessageId::new("m"),
            count: 1,
            worker: WorkerId::new("w"),
            nonce: "n".to_owned(),
            company: Company::Shared,
        },
        status: Status::Running,
        account: Account::default(),
        history: Vec::new(),
        sequence: 1,
        checkpoints: vec![Checkpoint {
            sequence: 1,
            schema: 1,
            bytes: state.bytes,
            sha256: state.sha256,
            plain_bytes: None,
            waits: 0,
            children: GivenBefore::default(),
            children_in_step: GivenBefore::default(),
            place: state.place,
            attachments: Some(part(b"a manifest")),
        }],
        careful_steps: 0,
        went_back: 0,
        ran_ms: 0,
        changed_unix_ms: 0,
        abandoned_after_ms: 0,
        expires_unix_ms: None,
        escalated: None,
        args_sha256: None,
        enqueued_unix_ms: 0,
    }
}

/// Returns `whole` with each bit changed in turn, and cut at each length.
fn damaged(whole: &[u8]) -> Vec<Vec<u8>> {
    let flipped = (0..whole.len() * 8).map(|bit| {
        let mut changed = whole.to_vec();
        changed[bit / 8] ^= 1 << (bit % 8);
        changed
    });
    flipped.chain((0..whole.len()).map(|length| whole[..length].to_vec())).collect()
}

/// Stores each damaged form of `whole` as a payload, and checks that `fits` notices what is read.
async fn notices(store: &dyn RecordStore, whole: &[u8], fits: impl Fn(&[u8]) -> bool) {
    assert!(fits(whole), "what is not damaged fits");
    let forms = damaged(whole);
    let (count, job) = (forms.len(), id(0));
    let stored = stream::iter(forms.into_iter().enumerate()).map(|(number, form)| {
        let (job, fits) = (&job, &fits);
        async move {
            let bytes = Bytes::from(form);
            let damaged = Payload { name: payload(number), bytes: bytes.clone() };
            store.store_payload(job, damaged).await.expect("stores");
            let read = store.payload(job, &payload(number)).await.expect("reads");
            assert_eq!(read.as_ref(), Some(&bytes), "a store keeps any bytes");
            assert!(!fits(&bytes), "form {number} passes for the whole");
        }
    });
    assert_eq!(stored.buffer_unordered(AT_ONCE).count().await, count);
}

/// A record with a changed bit or a missing byte is read as damaged.
pub async fn every_changed_bit_and_every_cut_of_a_record_is_noticed(fixture: &Fixture) {
    let store = &*fixture.store.records;
    let whole = seal(&record());
    let forms = damaged(&whole);
    let count = forms.len();
    let stored = stream::iter(forms.into_iter().enumerate()).map(|(number, form)| {
        let whole = &whole;
        async move {
            let write = RecordWrite { record: form.clone(), ..RecordWrite::default() };
            store.put(&id(number), None, write).await.expect("writes");
            let read = store.load(&id(number)).await.expect("loads").expect("it is there").bytes;
            assert_eq!(read, form, "a store keeps any bytes");
            // The checksum is the same number in upper case.
            if !form.eq_ignore_ascii_case(whole) {
                assert!(matches!(open(&read), Err(Unreadable::Damaged(_))), "form {number}");
            }
        }
    });
    assert_eq!(stored.buffer_unordered(AT_ONCE).count().await, count);
}

/// A state or manifest with a changed bit or a missing byte does not fit its checkpoint.
pub async fn every_changed_bit_and_every_cut_of_a_payload_is_noticed(fixture: &Fixture) {
    let whole = b"a state that is too large for a record";
    let checkpoint = part(whole);
    notices(&*fixture.store.records, whole, |bytes| checkpoint.fits(bytes)).await;
}

/// A chunk of an attachment with a changed bit or a missing byte does not fit its manifest.
pub async fn every_changed_bit_and_every_cut_of_a_chunk_is_noticed(fixture: &Fixture) {
    let whole = b"a part of an attachment";
    let chunk = Chunk::new(payload(0), ContentHash::of(whole));
    notices(&*fixture.store.records, whole, |bytes| chunk.fits(bytes)).await;
}

/// Generates one test per promise of damaged data; see [`conformance`](crate::conformance).
#[macro_export]
macro_rules! damage_conformance {
    ($fixture:ident $(, $($attribute:tt)*)?) => {
        $crate::__conformance! {
            damage, damage_conformance, $fixture, ($($($attribute)*)?),
            every_changed_bit_and_every_cut_of_a_record_is_noticed,
            every_changed_bit_and_every_cut_of_a_payload_is_noticed,
            every_changed_bit_and_every_cut_of_a_chunk_is_noticed,
        }
    };
}
