//! The main promise, with real pictures: one worker is evicted half way and another killed, and the
//! thumbnails are the same as without that. Once on the embedded store, and once in a storage
//! account with pictures that others uploaded.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use reprieve_tests::azurite::{azurite, python};
use reprieve_tests::{Cost, Finished, Made, Picture, Run, Sandbox, pictures};

const PICTURES: u32 = 60;
const BATCH: usize = 6;
const SIZE: u32 = 128;

/// Checks that the results cover every picture, and the reasons for the broken ones.
fn check_results(results: &[Made], all: &[Picture]) {
    let failed: BTreeMap<_, _> = results
        .iter()
        .flat_map(|made| &made.failed)
        .map(|one| (one.name.as_str(), one.reason.as_str()))
        .collect();
    let broken: BTreeSet<_> = all.iter().filter(|one| !one.readable).map(|one| one.name.as_str()).collect();
    assert_eq!(failed.keys().copied().collect::<BTreeSet<_>>(), broken);
    assert!(failed.values().all(|reason| !reason.is_empty()), "{failed:?}");
    let done: usize = results.iter().map(|made| made.done).sum();
    assert_eq!((results.len(), done), (all.len().div_ceil(BATCH), all.len() - broken.len()));
}

#[tokio::test]
async fn an_eviction_and_a_kill_half_way_change_no_thumbnail() {
    let photos = tempfile::tempdir().unwrap();
    let all = pictures(photos.path(), PICTURES);
    let readable = all.iter().filter(|picture| picture.readable).count();

    let reference = Run::over(photos.path(), SIZE, BATCH).await.undisturbed().await;
    assert_eq!(reference.thumbnails.len(), readable);
    check_results(&reference.results, &all);

    let (survived, cost) = Run::over(photos.path(), SIZE, BATCH).await.disturbed(readable).await;
    println!("{cost:?}");
    check_survival(&survived, &reference, &cost, &all);
    assert!(cost.recovered_ms < 5000, "the killed worker's job lay idle: {cost:?}");
}

#[tokio::test]
async fn pictures_uploaded_by_others_survive_the_same() {
    let (Some(azurite), Some(python)) = (azurite(), python()) else { return };
    let photos = tempfile::tempdir().unwrap();
    let all = pictures(photos.path(), PICTURES);
    let readable = all.iter().filter(|picture| picture.readable).count();
    let reference = Run::over(photos.path(), SIZE, BATCH).await.undisturbed().await;

    let sandbox = Sandbox::in_account(azurite.connection_string(), 1).await;
    upload(&python, azurite.connection_string(), sandbox.container(), photos.path());
    // A Storage queue learns of a worker's death only from the end of the lease.
    let run = Run::over_uploads(sandbox, SIZE, BATCH, &["--budget", "4s", "--lease", "6s"]).await;
    let (survived, cost) = run.disturbed(readable).await;
    println!("{cost:?}");
    check_survival(&survived, &reference, &cost, &all);
    // The lease, the longest poll interval of an idle worker, and one batch of a busy one.
    assert!(cost.recovered_ms < 30_000, "the killed worker's job lay idle: {cost:?}");
}

/// Checks that every thumbnail exists and is right, and that the eviction and the kill cost no more
/// than promised.
fn check_survival(survived: &Finished, reference: &Finished, cost: &Cost, all: &[Picture]) {
    assert!(
        survived.thumbnails == reference.thumbnails,
        "a thumbnail is missing, or not as it would have been"
    );
    check_results(&survived.results, all);
    let drain = &cost.drain;
    assert!(drain.held >= 1, "it was evicted too late to matter: {drain:?}");
    assert_eq!((drain.released_cut, drain.abandoned, drain.work_lost_ms), (0, 0, 0), "{drain:?}");
    assert!(drain.released_after_ms < 1000, "{drain:?}");
    // Besides the picture in progress at the kill, which has no finished thumbnail.
    assert!(cost.again <= 1, "the kill cost more than the last step before it: {cost:?}");
}

/// Uploads all of `photos` to the container with Azure's own packages, as `az storage blob
/// upload-batch` does.
fn upload(python: &Path, connection_string: &str, container: &str, photos: &Path) {
    let uploaded = Command::new(python)
        .arg("-B")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("python/upload_batch.py"))
        .args([container, "photos"])
        .arg(photos)
        .env("AZURE_STORAGE_CONNECTION_STRING", connection_string)
        .status()
        .expect("Python");
    assert!(uploaded.success(), "the upload ended with {uploaded}");
}
