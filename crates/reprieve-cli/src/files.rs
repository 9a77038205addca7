//! Files that the user names, read as text.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;

/// The largest file that is read: a device has no end.
const BYTES_MAX: u64 = 256 << 20;

/// The text of a file.
///
/// # Errors
/// What is wrong with it, in words that follow its name.
pub(crate) fn text(file: &Path) -> Result<String, String> {
    let unreadable = |error: std::io::Error| format!("can't be read: {error}");
    if fs::metadata(file).map_err(unreadable)?.is_dir() {
        return Err("is a directory: name a file".to_owned());
    }
    let mut bytes = Vec::new();
    File::open(file).map_err(unreadable)?.take(BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(format!("is larger than {} MiB: cut it", BYTES_MAX >> 20));
    }
    String::from_utf8(bytes).map_err(|_| "is no text".to_owned())
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_text_of_some_size_is_refused() {
        let fault = |file: &str| text(Path::new(file)).expect_err(file);
        assert_eq!(fault("/dev/zero"), "is larger than 256 MiB: cut it");
        assert_eq!(fault("/"), "is a directory: name a file");
        assert!(fault("/no/such/file").starts_with("can't be read: "));
        assert_eq!(text(Path::new("/dev/null")), Ok(String::new()));
    }
}
