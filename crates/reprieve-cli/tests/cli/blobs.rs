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
async fn a_file_of_any_size_becomes_an_input_and_comes_back() {
    let place = Place::new();
    let bytes: Vec<u8> = (0..10_000_019_u32).map(|at| (at % 251) as u8).collect();
    place.write("film.mov", &bytes);
    assert_eq!(place.succeeds(&["blobs", "put", "films/12.mov", "film.mov"]), "");
    let got = place.command(&["blobs", "get", "films/12.mov"]).output().expect("the command runs");
    assert!(got.status.success() && got.stdout == bytes);
    let ran = place.run_with_stdin(&["blobs", "put", "films/12.mov", "-"], "short");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(place.succeeds(&["blobs", "get", "films/12.mov"]), "short");
}

#[test]
fn what_is_no_file_or_no_input_is_refused() {
    let place = Place::new();
    place.write("a", "a");
    for (args, why) in [
        (["in/a", "none"], "none can't be opened: No such file"),
        (["in/a", "."], "Is a directory"),
        (["results/a.json", "a"], "results/"),
        (["in//a", "a"], "in//a"),
    ] {
        let ran = place.run(&[&["blobs", "put"], &args[..]].concat());
        assert!(ran.code.is_some_and(|code| code > 0) && ran.err.contains(why), "{args:?}: {ran:?}");
    }
    assert_eq!(place.succeeds(&["blobs", "list", "in"]), "");
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
