//! The seeds of the fuzz target, which otherwise runs only on request.

#[path = "../../../fuzz/fuzz_targets/notification.rs"]
mod notification;

use std::fs;
use std::path::Path;

#[test]
fn every_seed_of_the_fuzz_target_is_borne() {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/redis_notifications");
    let mut heard = 0;
    for seed in fs::read_dir(&seeds).expect("seeds") {
        notification::hear(&fs::read(seed.expect("a seed").path()).expect("a seed"));
        heard += 1;
    }
    assert!(heard >= 10, "there are {heard} seeds in {}", seeds.display());
}
