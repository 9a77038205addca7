//! Shows a survived eviction: makes thumbnails of a directory of pictures twice, and compares. The
//! first run is undisturbed; in the second one worker is evicted and another killed.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use reprieve_tests::{Cost, Finished, Run, pictures};
use tokio::time::Instant;

/// The number of pictures that are made when none are given.
const PICTURES: u32 = 120;

/// The pictures per job, and the size of their thumbnails.
const BATCH: usize = 12;
const SIZE: u32 = 256;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let own = tempfile::tempdir();
    let (photos, what) = match (std::env::args_os().nth(1), &own) {
        (Some(directory), _) => (PathBuf::from(directory), "the pictures given".to_owned()),
        (None, Ok(own)) => {
            say(&format!("making {PICTURES} pictures …"));
            let made = pictures(own.path(), PICTURES);
            let broken = made.iter().filter(|picture| !picture.readable).count();
            (own.path().to_owned(), format!("{} pictures, {broken} of them broken", made.len()))
        }
        (None, Err(error)) => {
            say(&format!("there is no room for pictures: {error}"));
            return ExitCode::FAILURE;
        }
    };
    if !photos.is_dir() {
        say(&format!("{} is not a directory; name one with pictures in it", photos.display()));
        return ExitCode::from(2);
    }
    show(&photos, &what).await
}

async fn show(photos: &Path, what: &str) -> ExitCode {
    say("building the example …");
    let run = Run::over(photos, SIZE, BATCH).await;
    say("an undisturbed run of two workers, to compare with …");
    let (reference, calm) = timed(run.undisturbed()).await;
    if reference.thumbnails.len() < 8 {
        say("there are too few pictures to take a worker away half way; name a directory with more");
        return ExitCode::from(2);
    }
    say("the same again, but one worker is evicted and the other one is killed …");
    let run = Run::over(photos, SIZE, BATCH).await;
    let ((survived, cost), disturbed) = timed(run.disturbed(reference.thumbnails.len())).await;
    let same = survived.thumbnails == reference.thumbnails;
    for line in story(what, &reference, calm, disturbed, &cost) {
        tell(&line);
    }
    if same {
        tell("Every thumbnail is there once, and equal to that of the undisturbed run.");
        ExitCode::SUCCESS
    } else {
        tell("THE THUMBNAILS DIFFER. This is a defect; please report it with the pictures.");
        ExitCode::FAILURE
    }
}

async fn timed<T>(work: impl Future<Output = T>) -> (T, Duration) {
    let began = Instant::now();
    (work.await, began.elapsed())
}

fn story(what: &str, reference: &Finished, calm: Duration, disturbed: Duration, cost: &Cost) -> Vec<String> {
    let drain = &cost.drain;
    let unreadable: usize = reference.results.iter().map(|made| made.failed.len()).sum();
    vec![
        String::new(),
        format!("{} thumbnails of {what}; {unreadable} reported as unreadable", reference.thumbnails.len()),
        format!("undisturbed      {:.1} s", calm.as_secs_f64()),
        format!(
            "disturbed        {:.1} s, with one worker evicted and one killed half way",
            disturbed.as_secs_f64()
        ),
        format!(
            "the eviction     {} ms from the notice until its lease was released, {} ms of work lost",
            drain.released_after_ms, drain.work_lost_ms
        ),
        format!("the kill         {} ms until another worker had gone on with its job", cost.recovered_ms),
        format!("steps redone     {} of {}", cost.again, reference.thumbnails.len() + unreadable),
    ]
}

/// Prints a line of progress.
#[expect(clippy::print_stderr, reason = "this is a program for people to watch")]
fn say(line: &str) {
    eprintln!("{line}");
}

/// Prints a line of the result.
#[expect(clippy::print_stdout, reason = "this is a program for people to watch")]
fn tell(line: &str) {
    println!("{line}");
}
