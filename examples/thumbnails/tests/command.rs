//! The commands as a user runs them: a worker in one directory, `enqueue --wait` in another.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use clap::Parser;
use image::RgbImage;
use reprieve::{BlobName, Client, StoreArgs};

/// A worker that ends with the test.
struct Worker(Child);

impl Drop for Worker {
    fn drop(&mut self) {
        // It may have ended already.
        let _gone = self.0.kill();
        let _gone = self.0.wait();
    }
}

fn thumbnails(place: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thumbnails"));
    command.current_dir(place).env_clear();
    command
}

fn work(place: &Path) -> Worker {
    let worker = thumbnails(place).args(["work", "--metadata-url", "off"]).stderr(Stdio::null()).spawn();
    Worker(worker.expect("a worker"))
}

fn enqueue(place: &Path, arguments: &[&str]) -> Output {
    thumbnails(place).arg("enqueue").args(arguments).output().expect("an end of enqueue")
}

/// Returns a blob of the store in this directory.
fn blob(place: &Path, name: &str) -> Vec<u8> {
    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        store: StoreArgs,
    }
    let store = format!("--store=sqlite:{}", place.join("reprieve.db").display());
    let args = Cli::parse_from(["test", &store]).store;
    let read = reprieve::block_on(async {
        let client = Client::open_existing(&args).await?;
        client.store().blobs.get(&BlobName::parse(name)?).await
    });
    read.expect("a store").unwrap_or_else(|| panic!("there is no {name}"))
}

#[track_caller]
fn check(output: &Output, code: i32, stdout: &str, stderr: &str) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(code), stdout), "{output:?}");
    assert!(text(&output.stderr).contains(stderr), "{output:?}");
}

#[test]
fn a_directory_goes_in_and_thumbnails_come_out() {
    let place = tempfile::tempdir().unwrap();
    fs::create_dir_all(place.path().join("photos/old")).unwrap();
    for name in ["photos/a.png", "photos/a.jpg", "photos/old/a.webp"] {
        RgbImage::from_pixel(300, 100, image::Rgb([1, 2, 3])).save(place.path().join(name)).unwrap();
    }
    let _worker = work(place.path());
    check(
        &enqueue(place.path(), &["photos", "--size", "30", "--wait"]),
        0,
        "3 made, 0 failed\n",
        "enqueued 1 job for 3 pictures\n",
    );
    for name in ["a.png.jpg", "a.jpg.jpg", "old/a.webp.jpg"] {
        let made = image::load_from_memory(&blob(place.path(), &format!("thumbnails/{name}"))).unwrap();
        assert_eq!((made.width(), made.height()), (30, 10), "{name}");
    }
}

#[test]
fn pictures_that_are_in_the_store_already_are_enqueued_by_folder() {
    let place = tempfile::tempdir().unwrap();
    check(
        &enqueue(place.path(), &["--uploaded"]),
        1,
        "",
        "error: there are no pictures under photos/ in the store\n",
    );
    fs::create_dir_all(place.path().join("mine/old")).unwrap();
    for name in ["mine/a.png", "mine/old/b.png", "mine/old/c.png"] {
        RgbImage::from_pixel(30, 10, image::Rgb([1, 2, 3])).save(place.path().join(name)).unwrap();
    }
    // Puts them where other programs would.
    check(&enqueue(place.path(), &["mine"]), 0, "", "enqueued 1 job for 3 pictures\n");
    let _worker = work(place.path());
    let output = enqueue(place.path(), &["--uploaded=old", "--batch", "1", "--wait"]);
    check(&output, 0, "2 made, 0 failed\n", "enqueued 2 jobs for 2 pictures\n");
    check(&enqueue(place.path(), &["--uploaded", "mine"]), 2, "", "cannot be used with");
    check(&enqueue(place.path(), &[]), 2, "", "required");
}

#[test]
fn a_picture_without_a_thumbnail_is_reported_and_fails() {
    let place = tempfile::tempdir().unwrap();
    fs::create_dir(place.path().join("photos")).unwrap();
    fs::write(place.path().join("photos/notes.JPG"), "not a picture").unwrap();
    fs::write(place.path().join("photos/10:30.png"), "no name for a blob").unwrap();
    let _worker = work(place.path());
    let output = enqueue(place.path(), &["photos", "--wait"]);
    check(
        &output,
        1,
        "0 made, 1 failed\nnotes.JPG: not a JPEG, PNG, WebP or GIF picture\n",
        "skipped photos/10:30.png",
    );
}

#[test]
fn a_directory_that_cannot_be_read_is_one_sentence() {
    let place = tempfile::tempdir().unwrap();
    check(
        &enqueue(place.path(), &["nowhere"]),
        1,
        "",
        "error: failed to read nowhere: No such file or directory",
    );
}
