//! The manifest of the archive. The commands on a VM read it with sed, because a shell has no JSON:
//! a file is a line.

use std::fmt::{self, Display, Formatter, Write};

use sha2::{Digest, Sha256};

use super::archive::Entry;
use super::program::Program;

pub(super) struct Manifest<'a> {
    pub(super) name: &'a str,
    pub(super) version: &'a str,
    pub(super) program: &'a Program,
    pub(super) files: &'a [Entry],
}

impl Display for Manifest<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Program { architecture, glibc } = self.program;
        writeln!(f, "{{")?;
        writeln!(f, "  \"name\": \"{}\",", self.name)?;
        writeln!(f, "  \"version\": \"{}\",", self.version)?;
        writeln!(f, "  \"architecture\": \"{architecture}\",")?;
        match glibc {
            Some(glibc) => writeln!(f, "  \"glibc\": \"{glibc}\",")?,
            None => writeln!(f, "  \"glibc\": null,")?,
        }
        writeln!(f, "  \"files\": [")?;
        for (index, file) in self.files.iter().enumerate() {
            let comma = if index + 1 == self.files.len() { "" } else { "," };
            writeln!(
                f,
                "    {{\"path\": \"{}\", \"mode\": \"{:04o}\", \"size\": {}, \"sha256\": \"{}\"}}{comma}",
                file.path,
                file.mode,
                file.content.len(),
                sha256(&file.content)
            )?;
        }
        writeln!(f, "  ]")?;
        writeln!(f, "}}")
    }
}

/// Returns the digest in hexadecimal digits.
pub(super) fn sha256(content: &[u8]) -> String {
    let mut text = String::new();
    for byte in Sha256::digest(content) {
        // Writing to a string does not fail.
        let _written = write!(text, "{byte:02x}");
    }
    text
}
