//! `reprieve blobs`.

use reprieve::BlobName;

use crate::support::Place;

async fn put(place: &Place, name: &str, bytes: &[u8]) {
    let client = place.client().await;
    let name = BlobName::parse(name).expect("a name");
    client.store().blobs.put(&name, bytes.to_vec(), None).await.expect("written");
}

#[tokio::test]
async fn names_are_listed_in_order_and_bytes_come_back_as_they_are() {
    let place = Place::new();
    for (name, bytes) in [("results/b.json", &b"{\"b\":1}"[..]), ("results/a.json", b"1"), ("in/été", b"x\n")]
    {
        put(&place, name, bytes).await;
    }
    assert_eq!(place.succeeds(&["blobs", "list"]), "in/été\nresults/a.json\nresults/b.json\n");
    assert_eq!(place.succeeds(&["blobs", "list", "results/"]), "results/a.json\nresults/b.json\n");
    assert_eq!(place.succeeds(&["blobs", "list", "in", "--json"]), "[\"in/été\"]\n");
    assert_eq!(place.succeeds(&["blobs", "list", "none/"]), "");
    assert_eq!(place.succeeds(&["blobs", "get", "results/b.json"]), "{\"b\":1}", "without a line end");
    assert_eq!(place.succeeds(&["blobs", "get", "in/été"]), "x\n");
}

#[tokio::test]
async fn a_blob_that_is_not_there_is_an_error() {
    let place = Place::new();
    let _made = place.client().await;
    let ran = place.run(&["blobs", "get", "results/none.json"]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""), "{ran:?}");
    assert!(ran.err.contains("there is no blob results/none.json"), "{ran:?}");
}

#[test]
fn a_store_that_is_not_there_is_not_made() {
    let place = Place::new();
    let ran = place.run(&["blobs", "list"]);
    assert!(ran.code == Some(2) && ran.err.contains("there is no store at reprieve.db"), "{ran:?}");
    assert!(!place.path("reprieve.db").exists());
}
