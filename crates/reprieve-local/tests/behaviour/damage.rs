//! Rows and files that are damaged where they lie: every flipped bit and every cut is noticed, and no
//! wrong state is returned.

use reprieve_core::JobId;
use reprieve_core::ports::{Payload, RecordWrite, Store};
use reprieve_core::record::{ContentHash, Part, Place, Unreadable, open};
use rusqlite::Connection;

use crate::bench::{Bench, job, payload};
use crate::whole_worker::interrupted_job;

/// All damaged forms: each bit flipped, each cut, and a byte more.
fn damaged(whole: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let flipped = (0..whole.len() * 8).map(|bit| {
        let mut bytes = whole.to_vec();
        bytes[bit / 8] ^= 1 << (bit % 8);
        bytes
    });
    let cut = (0..whole.len()).map(|length| whole[..length].to_vec());
    flipped.chain(cut).chain([[whole, b"x"].concat()])
}

/// A connection that writes fast, because no test of it needs its writes to last.
fn fast(bench: &Bench) -> Connection {
    let conn = bench.conn();
    conn.execute_batch("PRAGMA synchronous = OFF").unwrap();
    conn
}

async fn load(store: &Store, job: &JobId) -> Vec<u8> {
    store.records.load(job).await.unwrap().expect("the row is there").bytes
}

#[tokio::test]
async fn every_flipped_bit_and_every_cut_of_a_records_row_is_noticed() {
    let bench = Bench::new();
    let store = bench.open_worker().await;
    let job = interrupted_job(&store, 20).await;
    let whole = load(&store, &job).await;
    let record = open(&whole).unwrap();
    assert!(matches!(record.checkpoints[0].place, Place::Inside(_)), "its states are inside");
    let conn = fast(&bench);
    let mut replace = conn.prepare("UPDATE record SET data = ?1 WHERE job = ?2").unwrap();
    let mut replace = |bytes: &[u8]| replace.execute((bytes, job.as_str())).unwrap();
    for bytes in damaged(&whole) {
        // A changed case of a hexadecimal digit leaves the checksum the same number.
        if bytes.eq_ignore_ascii_case(&whole) {
            continue;
        }
        assert_eq!(replace(&bytes), 1);
        let read = open(&load(&store, &job).await);
        assert!(matches!(read, Err(Unreadable::Damaged(_))), "{bytes:?} became {read:?}");
    }
    replace(&whole);
    assert_eq!(open(&load(&store, &job).await), Ok(record));
}

const NAME: &str = "0.m.1-1";

/// A state of a few hundred bytes.
fn state() -> Vec<u8> {
    (0..=250).chain(0..50).collect()
}

/// A store with a payload of that state, and the part of a checkpoint that names it.
async fn with_payload() -> (Bench, Store, Part) {
    let bench = Bench::new();
    let store = bench.open().await;
    let payload = Some(Payload { name: payload(NAME), bytes: state().into() });
    let write = RecordWrite { payload, ..RecordWrite::default() };
    store.records.put(&job("a"), None, write).await.unwrap();
    let part = Part {
        bytes: state().len() as u64,
        sha256: ContentHash::of(&state()),
        place: Place::Payload(self::payload(NAME)),
    };
    (bench, store, part)
}

async fn read(store: &Store) -> Option<Vec<u8>> {
    store.records.payload(&job("a"), &payload(NAME)).await.unwrap().map(Vec::from)
}

#[tokio::test]
async fn every_flipped_bit_and_every_cut_of_a_payloads_row_is_noticed() {
    let (bench, store, part) = with_payload().await;
    assert!(part.fits(&read(&store).await.unwrap()));
    let conn = fast(&bench);
    let mut replace = conn.prepare("UPDATE payload SET data = ?1").unwrap();
    for bytes in damaged(&state()) {
        assert_eq!(replace.execute([&bytes]).unwrap(), 1);
        assert!(!part.fits(&read(&store).await.expect("the row is there")), "{bytes:?}");
    }
    conn.execute("DELETE FROM payload", []).unwrap();
    assert_eq!(read(&store).await, None);
}

#[tokio::test]
async fn every_flipped_bit_and_every_cut_of_a_payloads_file_is_noticed() {
    let (bench, store, part) = with_payload().await;
    // As the store keeps a large one.
    fast(&bench).execute("UPDATE payload SET data = NULL, file = 'token-0'", []).unwrap();
    let file = bench.path().with_extension("db.d").join("payloads/token-0");
    std::fs::write(&file, state()).unwrap();
    assert!(part.fits(&read(&store).await.unwrap()));
    for bytes in damaged(&state()) {
        std::fs::write(&file, &bytes).unwrap();
        assert!(!part.fits(&read(&store).await.expect("the file is there")), "{bytes:?}");
    }
    std::fs::remove_file(&file).unwrap();
    assert_eq!(read(&store).await, None);
}

/// The job has another checkpoint: a name that leads to no file must not keep it waiting.
#[cfg(unix)]
#[tokio::test]
async fn what_is_no_file_of_a_payload_is_a_missing_one() {
    let (bench, store, _) = with_payload().await;
    let conn = fast(&bench);
    let payloads = bench.path().with_extension("db.d").join("payloads");
    let made = std::process::Command::new("mkfifo").arg(payloads.join("pipe")).status();
    assert!(made.unwrap().success());
    std::fs::create_dir(payloads.join("directory")).unwrap();
    std::os::unix::fs::symlink("loop", payloads.join("loop")).unwrap();
    let long = "x".repeat(300);
    let names = ["pipe", "directory", "loop", "none", "none/below", "a\0b", &long, ".", ""];
    let texts = names.map(|name| name.as_bytes().to_vec()).into_iter().chain([vec![0xff, 0xfe]]);
    let lead_to = |name: &[u8]| {
        let change = "UPDATE payload SET data = NULL, file = CAST(?1 AS TEXT)";
        assert_eq!(conn.execute(change, [name]).unwrap(), 1);
    };
    for name in texts {
        lead_to(&name);
        assert_eq!(read(&store).await, None, "{}", String::from_utf8_lossy(&name));
    }
}

#[tokio::test]
async fn a_payloads_file_that_has_grown_is_not_read_to_its_end() {
    let (bench, store, part) = with_payload().await;
    fast(&bench).execute("UPDATE payload SET data = NULL, file = 'token-0'", []).unwrap();
    let file = bench.path().with_extension("db.d").join("payloads/token-0");
    std::fs::write(&file, state()).unwrap();
    // It takes no space on the disk.
    std::fs::OpenOptions::new().write(true).open(&file).unwrap().set_len(1 << 40).unwrap();
    let found = read(&store).await.expect("the file is there");
    assert_eq!(found.len() as u64, part.bytes + 1);
    assert!(!part.fits(&found));
}
