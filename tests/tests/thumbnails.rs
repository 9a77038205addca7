//! The main promise, with real pictures: one worker is evicted half way and another killed, and the thumbnails are the
//! same as if nothing had happened.

use std::collections::{BTreeMap, BTreeSet};

use reprieve_tests::{Made, Picture, Run, pictures};

const PICTURES: u32 = 60;
const BATCH: usize = 6;

/// Checks that the results tell of every picture, and why the broken ones gave nothing.
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

    let reference = Run::over(photos.path(), 128, BATCH).await.undisturbed().await;
    assert_eq!(reference.thumbnails.len(), readable);
    check_results(&reference.results, &all);

    let (survived, cost) = Run::over(photos.path(), 128, BATCH).await.disturbed(readable).await;
    println!("{cost:?}");
    assert!(
        survived.thumbnails == reference.thumbnails,
        "a thumbnail is missing, or not as it would have been"
    );
    check_results(&survived.results, &all);
    let drain = &cost.drain;
    assert!(drain.held >= 1, "it was evicted too late to matter: {drain:?}");
    assert_eq!((drain.released_cut, drain.abandoned, drain.work_lost_ms), (0, 0, 0), "{drain:?}");
    assert!(drain.released_after_ms < 1000, "{drain:?}");
    // Besides the picture that was under way at the kill, whose thumbnail nobody had finished.
    assert!(cost.again <= 1, "the kill cost more than the last step before it: {cost:?}");
    assert!(cost.recovered_ms < 5000, "the killed worker's job lay idle: {cost:?}");
}
