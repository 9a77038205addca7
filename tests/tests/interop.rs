//! Other programs' messages are processed, and other programs find results and dead letters: Python
//! with Azure's own packages, the `az` command, .NET and Event Grid.
//!
//! Needs what `cargo xtask test` prepares: Azurite, and Python with the packages of
//! `tests/python/requirements.txt`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use reprieve_core::JobId;
use reprieve_tests::azurite::{azurite, python, unique};
use reprieve_tests::{Worker, until};
use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::TempDir;

const JOBS: &str = env!("CARGO_BIN_EXE_interop-jobs");

const PATIENCE: Duration = Duration::from_secs(30);

/// A test's own queue and container, with a worker and Python.
struct Shop {
    worker: Worker,
    python: PathBuf,
    connection_string: String,
    queue: String,
    container: String,
    _directory: TempDir,
}

/// A message in the output of `poison.py`.
#[derive(Debug, Deserialize)]
struct Letter {
    id: String,
    reason: Option<String>,
    body: Value,
}

impl Shop {
    /// Starts a worker and waits until it takes jobs, so that its queues and container exist.
    /// Returns `None` where the test is skipped.
    async fn open(purpose: &str) -> Option<Self> {
        let (azurite, python) = (azurite()?, python()?);
        let connection_string = azurite.connection_string().to_owned();
        let (queue, container) = (unique(purpose), unique(purpose));
        let directory = tempfile::tempdir().expect("a temporary directory");
        let place = ["--queue", &queue, "--container", &container, "--metadata-url", "off"];
        let arguments = [&place[..], &["--unknown-kind-after", "5s"]].concat();
        let worker = Worker::start_on(&connection_string, directory.path(), Path::new(JOBS), arguments, &[]);
        until("the worker takes work", PATIENCE, async || {
            worker.log().lines("stage changed").iter().any(|line| line.text("to") == "start").then_some(())
        })
        .await;
        Some(Self { worker, python, connection_string, queue, container, _directory: directory })
    }

    /// Runs one of the scripts beside this test with `input`, and returns its output.
    fn python(&self, script: &str, arguments: &[&str], input: &[u8]) -> Vec<u8> {
        let mut running = Command::new(&self.python)
            // Write no bytecode files beside the scripts.
            .arg("-B")
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("python").join(script))
            .args(arguments)
            .env("AZURE_STORAGE_CONNECTION_STRING", &self.connection_string)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("Python");
        let mut stdin = running.stdin.take().expect("a pipe");
        stdin.write_all(input).expect("a script that reads its input");
        drop(stdin);
        let ended = running.wait_with_output().expect("what a script writes");
        assert!(ended.status.success(), "{script} {arguments:?} ended with {}", ended.status);
        ended.stdout
    }

    /// Sends a job, and returns the sender's id of it.
    fn send(&self, kind: &str, arguments: &[&str], args: &Value) -> String {
        let arguments = [&[self.queue.as_str(), kind], arguments].concat();
        let id = self.python("send.py", &arguments, args.to_string().as_bytes());
        String::from_utf8(id).expect("an id").trim().to_owned()
    }

    /// Puts a message with this text.
    fn put(&self, text: &[u8]) {
        self.python("put.py", &[&self.queue], text);
    }

    /// Waits for a job's result, and returns it.
    fn result(&self, job: &str) -> Value {
        let name = format!("results/{job}.json");
        serde_json::from_slice(&self.download(&name)).expect("a result is JSON")
    }

    fn download(&self, name: &str) -> Vec<u8> {
        self.python("download.py", &[&self.container, name], b"")
    }

    /// Waits for `expected` messages in the poison queue, and returns them.
    fn letters(&self, expected: usize) -> Vec<Letter> {
        let output = self.python("poison.py", &[&self.queue, "--expect", &expected.to_string()], b"");
        serde_json::from_slice(&output).expect("letters")
    }
}

#[tokio::test]
async fn a_job_that_python_sends_as_it_is_or_as_base64_is_done_and_python_reads_its_result() {
    let Some(shop) = Shop::open("python").await else { return };
    let args = json!({
        "markup": "<a href=\"x\" title='y'>&amp; ]]> <!-- </a>",
        "far": "Zoë, 日本語, 🚀",
        "controls": "\u{1}\t\r\n\u{7f}\u{85}\u{2028}",
        "edges": "  ",
        "numbers": [1.5, -0.25, 9_007_199_254_740_993_u64],
        "nested": {"": [null, true, {}]},
    });
    for encoding in [&[][..], &["--base64"]] {
        let job = shop.send("echo", encoding, &args);
        assert_eq!(shop.result(&job), args, "{encoding:?}");
    }
    shop.worker.stop().await;
}

#[tokio::test]
async fn a_job_reads_a_blob_that_python_uploaded_and_python_reads_the_one_that_it_wrote() {
    let Some(shop) = Shop::open("python-blobs").await else { return };
    let text = "grüße & <b>ordnung</b>\n".repeat(1000);
    let (input, output) = ("inputs/grüße & more.txt", "outputs/loud.txt");
    shop.python("upload.py", &[&shop.container, input], text.as_bytes());

    let job = shop.send("shout", &["--base64"], &json!({"input": input, "output": format!("/{output}")}));
    assert_eq!(shop.result(&job), text.len());
    assert_eq!(String::from_utf8(shop.download(output)).unwrap(), text.to_uppercase());
    shop.worker.stop().await;
}

#[tokio::test]
async fn python_finds_a_dead_letter_unchanged_and_with_the_reason() {
    let Some(shop) = Shop::open("python-poison").await else { return };
    let bare = json!({"hello": "<Zoë> & 🚀"});
    let texts = ["half a {", "Grüße", "<b>&amp;</b>"];
    for text in texts {
        shop.put(text.as_bytes());
    }
    shop.put(bare.to_string().as_bytes());
    shop.send("sing", &["--base64"], &bare);
    let good = shop.send("echo", &[], &bare);

    let letters = shop.letters(texts.len() + 2);
    let reason = |what: &str, is_it: &dyn Fn(&Value) -> bool| {
        let letter = letters.iter().find(|letter| is_it(&letter.body));
        let letter = letter.unwrap_or_else(|| panic!("{what} is not in {letters:#?}"));
        assert!(!letter.id.is_empty());
        letter.reason.clone().unwrap_or_default()
    };
    for text in texts {
        let why = reason(text, &|body| body == text);
        assert!(why.contains("neither JSON nor base64 of JSON"), "{text}: {why:?}");
    }
    let why = reason("the bare object", &|body| *body == bare);
    assert!(why.contains("no specversion"), "{why:?}");
    // It was deferred first, because another worker might know the kind.
    let why = reason("the unknown kind", &|body| body["type"] == "sing" && body["data"] == bare);
    assert!(why.contains(r#"no worker that received it knows kind "sing""#), "{why:?}");
    assert_eq!(shop.result(&good), bare, "the good job among them is done");
    shop.worker.stop().await;
}

#[tokio::test]
async fn messages_of_az_of_dotnet_and_of_event_grid_are_jobs() {
    let Some(shop) = Shop::open("others").await else { return };
    let storage = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/batch\
                   /providers/Microsoft.Storage/storageAccounts/pictures";
    let created = json!({"url": "https://pictures.blob.core.windows.net/incoming/one%20%26%20two.jpg", "bytes": 524_288});
    let messages = [
        (
            "az-raw.txt",
            JobId::of_event("/people/ops", "az-raw"),
            json!({"note": "<b>5 > 4</b> & \"so\" on; ]]>", "name": "Zoë 🚀", "tabs": "a\tb\u{1}"}),
        ),
        (
            "az-base64.txt",
            JobId::of_event("/people/ops", "az-base64"),
            json!({"note": "<b>5 > 4</b> & so on", "name": "Zoë 🚀"}),
        ),
        (
            "dotnet-base64.txt",
            JobId::of_event("/orders", "5b4f6f0f-8d0a-4d3d-9a3c-0f6a2d1c7e11"),
            json!({"note": "<b>5 > 4</b> & so on", "name": "Zoë 🚀", "plus": "+"}),
        ),
        (
            "event-grid-event.txt",
            JobId::of_event(storage, "831e1650-001e-001b-66ab-eeb76e069631"),
            created.clone(),
        ),
        (
            "event-grid-cloud-event.txt",
            JobId::of_event(storage, "9aeb0fdf-c01e-0131-0922-9eb54906e209"),
            created,
        ),
    ];
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interop_messages");
    for (file, _, _) in &messages {
        shop.put(&std::fs::read(samples.join(file)).expect("a sample"));
    }
    for (file, job, expected) in messages {
        assert_eq!(shop.result(job.as_str()), expected, "{file}");
    }
    shop.worker.stop().await;
}
