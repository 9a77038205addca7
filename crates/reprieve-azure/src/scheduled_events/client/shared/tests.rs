//! The instance document in a directory.

use tempfile::TempDir;

use super::*;

#[cfg(target_os = "linux")]
#[test]
fn the_instance_document_is_kept_for_this_boot() {
    let parent: TempDir = tempfile::tempdir().expect("a directory");
    let of = |service| SharedDirectory::new(&parent.path().join("state"), service);
    let (first, second) = (of("http://127.0.0.1/"), of("http://127.0.0.1/"));
    assert_eq!(second.kept_instance(), None);
    first.write_instance(b"{}");
    assert_eq!(second.kept_instance().as_deref(), Some(&b"{}"[..]));
    assert_eq!(of("http://127.0.0.2/").kept_instance(), None);
    let other_boot = format!("{}\n{{}}", "0".repeat(36));
    fs::write(first.file("instance", "json"), other_boot).expect("written");
    assert_eq!(second.kept_instance(), None);
}
