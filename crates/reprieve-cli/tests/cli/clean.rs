//! `reprieve clean`.

use std::time::Duration;

use reprieve::BlobName;
use rusqlite::Connection;

use crate::support::{Place, Ran};

async fn put(place: &Place, name: &str) {
    let client = place.client().await;
    let name = BlobName::parse(name).expect("a name");
    client.store().blobs.put(&name, b"four".to_vec(), None).await.expect("written");
}

/// Lets everything in the store be written so many days earlier.
fn age(place: &Place, days: u64) {
    let database = Connection::open(place.path("reprieve.db")).expect("opens");
    database.busy_timeout(Duration::from_secs(5)).expect("waits");
    let earlier = days * 24 * 3_600_000;
    for table in ["blob", "record", "payload"] {
        let sql = format!("UPDATE {table} SET at = at - {earlier}");
        database.execute(&sql, []).expect("changes the times");
    }
}

#[tokio::test]
async fn what_is_old_and_not_needed_is_removed_and_a_dry_run_only_says_so() {
    let place = Place::new();
    let waiting = place.succeeds(&["enqueue", "k", "--args", &format!("{:?}", "x".repeat(40_000))]);
    let waiting = format!("args/{}.json", waiting.trim());
    for name in ["results/a.json", "results/b.json", "drains/1690000000000-w.json", "outputs/mine"] {
        put(&place, name).await;
    }
    assert_eq!(place.succeeds(&["clean"]), "nothing to remove\n");
    age(&place, 31);
    put(&place, "results/new.json").await;
    let all = place.succeeds(&["blobs", "list"]);
    assert_eq!(
        place.succeeds(&["clean", "--dry-run"]),
        "would remove 2 results and 1 drain report: 12 bytes\n"
    );
    assert_eq!(place.succeeds(&["blobs", "list"]), all);
    assert_eq!(place.succeeds(&["clean", "--keep-results", "32d"]), "removed 1 drain report: 4 bytes\n");
    let json = place.succeeds(&["clean", "--json"]);
    assert_eq!(
        json,
        "{\"arguments\":0,\"records\":0,\"payloads\":0,\"results\":2,\"drains\":0,\"marks\":0,\"ledger\":0,\"bytes\":8}\n"
    );
    assert_eq!(
        place.succeeds(&["blobs", "list"]),
        format!("{waiting}\noutputs/mine\nresults/new.json\n"),
        "the waiting job's arguments stay"
    );
    let given_up = ["clean", "--keep-unfinished", "30d"];
    assert!(place.succeeds(&given_up).starts_with("removed 1 argument blob: "));
    assert_eq!(place.succeeds(&["blobs", "list"]), "outputs/mine\nresults/new.json\n");
}

#[tokio::test]
async fn the_settings_file_says_how_long_and_a_short_time_is_refused() {
    let place = Place::new();
    put(&place, "results/a.json").await;
    age(&place, 31);
    std::fs::write(place.path("reprieve.toml"), "keep-results = \"forever\"\n").expect("written");
    assert_eq!(place.succeeds(&["clean"]), "nothing to remove\n");
    let ran = place.run(&["clean", "--keep-results", "1d"]);
    assert!(ran.code == Some(2) && ran.err.contains("at least 8 days"), "{ran:?}");
    assert_eq!(place.succeeds(&["clean", "--keep-results", "9d"]), "removed 1 result: 4 bytes\n");
}

#[test]
fn a_store_that_is_not_there_is_not_made() {
    let place = Place::new();
    let ran = place.run(&["clean"]);
    assert!(ran.code == Some(2) && ran.err.contains("there is no store at reprieve.db"), "{ran:?}");
}

#[test]
fn a_misspelt_variable_is_refused_before_anything_is_done() {
    let place = Place::new();
    for (variable, args) in [
        ("REPRIEVE_KEEP_RESULT", &["clean", "--dry-run"][..]),
        ("REPRIEVE_QUEU", &["enqueue", "tick", "--args", "1", "--force"]),
        ("REPRIEVE_STOR", &["status"]),
        ("REPRIEVE_QUEU", &["redrive", "job-1"]),
        ("REPRIEVE_QUEU", &["cancel", "job-1"]),
    ] {
        let ran: Ran = place.command(args).env(variable, "x").output().expect("it runs").into();
        assert_eq!(ran.code, Some(2), "{args:?}: {ran:?}");
        assert!(ran.err.contains(&format!("{variable}: there is no such setting; did you mean")), "{ran:?}");
    }
}

#[tokio::test]
async fn variables_of_prices_stop_no_command_of_a_store() {
    let place = Place::new();
    let client = place.client().await;
    drop(client);
    let batch = ["plan", "--like-batch", "--jobs", "1", "--job-time", "1m", "--vms", "1", "--runs", "1"];
    let plan = [&batch[..], &["--spot-price", "0.1", "--regular-price", "1"]].concat();
    for (variable, value) in [
        ("REPRIEVE_CACHE_DIR", "cache"),
        ("REPRIEVE_PRICES_URL", "http://127.0.0.1:1"),
        ("REPRIEVE_MANAGEMENT_URL", "http://127.0.0.1:1"),
    ] {
        for args in [&["status"][..], &["report", "--prices", "cache"], &["clean", "--dry-run"], &plan] {
            let ran: Ran = place.command(args).env(variable, value).output().expect("it runs").into();
            assert!(!ran.err.contains("there is no such setting"), "{variable}, {args:?}: {ran:?}");
        }
    }
}
