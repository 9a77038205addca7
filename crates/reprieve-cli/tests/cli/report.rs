//! `reprieve report`: the ledger of a store.

use serde_json::Value;

use crate::support::{Place, Working};

#[tokio::test]
async fn a_report_has_the_boots_and_interruptions_of_the_store() {
    let place = Place::new();
    let client = place.client().await;
    let empty = place.succeeds(&["report"]);
    assert!(empty.contains("the ledger has nothing of this time"), "{empty}");
    for _ in 0..2 {
        Working::on(&client).stop().await;
    }
    let figures: Value = serde_json::from_str(&place.succeeds(&["report", "--json"])).unwrap();
    assert_eq!((&figures["machines"], &figures["evictions"]), (&2.into(), &0.into()), "{figures}");
    assert_eq!(
        (&figures["interruptions"][0]["kind"], &figures["interruptions"][0]["count"]),
        (&"Signal".into(), &2.into())
    );
    let page = place.succeeds(&["report", "--since", "1h"]);
    assert!(page.contains("2 machines") && page.lines().any(|line| line.starts_with("Signal")), "{page}");
    // Two boots and two drains, below the header.
    assert_eq!(place.succeeds(&["report", "--csv"]).lines().count(), 5);
    place.succeeds(&["report", "--html", "report.html"]);
    let html = std::fs::read_to_string(place.path("report.html")).unwrap();
    assert!(html.starts_with("<!DOCTYPE html>") && html.contains("0 evictions of 2 machines"), "{html}");
    let failed = place.run(&["report", "--html", "no/such/directory.html"]);
    assert!(failed.code == Some(2) && failed.err.contains("name another file"), "{failed:?}");
}
