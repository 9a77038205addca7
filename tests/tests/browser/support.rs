//! Runs a browser, if there is one, and the scripts that use it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use reprieve_tests::saw_nothing;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// A view of a page, and its errors.
#[derive(Debug, Deserialize)]
pub(crate) struct View {
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) lang: String,
    pub(crate) images: usize,
    screenshot: PathBuf,
    faults: Vec<String>,
}

impl View {
    /// Checks that there are no errors, and that the screenshot exists.
    pub(crate) fn check(&self) {
        let Self { name, screenshot, faults, .. } = self;
        assert!(faults.is_empty(), "{name}: {faults:#?}");
        assert!(screenshot.is_file(), "{name}: {} is not there", screenshot.display());
    }
}

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("browser")
}

/// Returns the missing dependency, and how to install it.
fn missing() -> Option<&'static str> {
    let node = Command::new("node").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !node.is_ok_and(|status| status.success()) {
        return Some("there is no Node.js; install version 20 or later");
    }
    if !Path::new("/usr/bin/chromium").exists() {
        return Some("there is no /usr/bin/chromium; on Debian: apt-get install chromium fonts-dejavu-core");
    }
    if !scripts().join("node_modules/playwright-core").exists() {
        return Some("the scripts' packages are not there; run `npm ci --prefix tests/browser`");
    }
    None
}

/// Returns whether a browser can run; if not, prints why.
///
/// # Panics
/// When a browser can't run but is required.
pub(crate) fn can_look() -> bool {
    let missing = missing();
    if let Some(missing) = missing {
        saw_nothing("REPRIEVE_TESTS_NEED_BROWSER", missing);
    }
    missing.is_none()
}

/// Runs `script` for the page at `place` and returns its observations. The screenshots are kept
/// after the test.
pub(crate) fn look<T: DeserializeOwned>(script: &str, place: impl AsRef<OsStr>) -> T {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("the target directory");
    let looked = Command::new("node")
        .arg(scripts().join(script))
        .arg(place)
        .arg(target.join("artefacts"))
        .stderr(Stdio::inherit())
        .output()
        .expect("node, which was there a moment ago");
    let stdout = String::from_utf8_lossy(&looked.stdout);
    serde_json::from_str(&stdout)
        .unwrap_or_else(|error| panic!("{script}: {}: {error} in {stdout:?}", looked.status))
}
