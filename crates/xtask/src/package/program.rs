//! Checks that a program runs on the supported images.

use object::Endianness;
use object::elf::{self, FileHeader64};
use object::read::elf::{FileHeader, ProgramHeader};

use super::megabytes;

/// The C library of Ubuntu 22.04, the oldest of the supported images. Debian 12 has 2.36, and Azure
/// Linux 3 has 2.38.
const GLIBC_MAX: Glibc = Glibc(2, 35);

/// A worker is loaded by each new VM. Today's are smaller if they are built for it.
const SIZE_MAX: usize = 15_000_000;

/// The facts about a program that decide where it runs.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Program {
    /// As `uname -m` prints it.
    pub(super) architecture: &'static str,
    /// The oldest C library that it runs on; `None` if it is linked statically.
    pub(super) glibc: Option<Glibc>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Glibc(pub(super) u32, pub(super) u32);

impl std::fmt::Display for Glibc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

impl Program {
    /// Reads a program. An error continues a sentence that begins with its path.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, String> {
        let header = FileHeader64::<Endianness>::parse(bytes)
            .map_err(|_| "is not a Linux program (64-bit ELF)".to_owned())?;
        let damaged = |error: object::read::Error| format!("is damaged: {error}");
        let endian = header.endian().map_err(damaged)?;
        let architecture = match (endian, header.e_machine(endian)) {
            (Endianness::Little, elf::EM_X86_64) => "x86_64",
            (Endianness::Little, elf::EM_AARCH64) => "aarch64",
            _ => return Err("is for another processor than x86-64 and aarch64".to_owned()),
        };
        let interpreter = interpreter(header, endian, bytes).map_err(damaged)?;
        if !matches!(header.e_type(endian), elf::ET_EXEC | elf::ET_DYN) || header.e_entry(endian) == 0 {
            return Err("is a library or an object file, not a program".to_owned());
        }
        if let Some(interpreter) = interpreter.filter(|name| !name.contains("/ld-linux")) {
            return Err(format!(
                "is linked with another C library ({interpreter}): build it for the target \
                 {architecture}-unknown-linux-gnu, or statically"
            ));
        }
        let versions = needed(header, endian, bytes).map_err(damaged)?;
        let glibc = versions.iter().filter_map(|version| glibc(version)).max();
        match glibc {
            Some(newest) if newest > GLIBC_MAX => Err(format!(
                "needs glibc {newest}, and Ubuntu 22.04 has {GLIBC_MAX}: build it in a container of ubuntu:22.04, \
                 or with `cargo zigbuild --target {architecture}-unknown-linux-gnu.{GLIBC_MAX}` \
                 (`readelf -V` shows the versions)"
            )),
            _ => Ok(Self { architecture, glibc }),
        }
    }
}

/// Checks that a program is not too large to be loaded by each new VM.
pub(super) fn check_size(bytes: usize) -> Result<(), String> {
    if bytes <= SIZE_MAX {
        return Ok(());
    }
    Err(format!(
        "has {}, and the limit is {}: set `strip = true`, `lto = \"fat\"`, `codegen-units = 1` and \
         `opt-level = \"s\"` in the profile of release builds, or allow it with --allow-large",
        megabytes(bytes),
        megabytes(SIZE_MAX)
    ))
}

/// Returns the path of the dynamic loader.
fn interpreter(
    header: &FileHeader64<Endianness>,
    endian: Endianness,
    bytes: &[u8],
) -> object::read::Result<Option<String>> {
    for segment in header.program_headers(endian, bytes)? {
        if let Some(path) = segment.interpreter(endian, bytes)? {
            return Ok(Some(String::from_utf8_lossy(path).into_owned()));
        }
    }
    Ok(None)
}

/// Returns the names of the symbol versions that the dynamic loader must find.
fn needed(
    header: &FileHeader64<Endianness>,
    endian: Endianness,
    bytes: &[u8],
) -> object::read::Result<Vec<String>> {
    let sections = header.sections(endian, bytes)?;
    let Some((mut libraries, link)) = sections.gnu_verneed(endian, bytes)? else { return Ok(Vec::new()) };
    let strings = sections.strings(endian, bytes, link)?;
    let mut names = Vec::new();
    while let Some((_, mut versions)) = libraries.next()? {
        while let Some(version) = versions.next()? {
            names.push(String::from_utf8_lossy(version.name(endian, strings)?).into_owned());
        }
    }
    Ok(names)
}

/// Returns the release of glibc that brought a symbol version.
fn glibc(version: &str) -> Option<Glibc> {
    if version == "GLIBC_ABI_DT_RELR" {
        // Packed relocations, which older loaders refuse by this name.
        return Some(Glibc(2, 36));
    }
    let mut numbers = version.strip_prefix("GLIBC_")?.split('.').map(str::parse);
    Some(Glibc(numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_release_of_a_symbol_version() {
        for (version, expected) in [
            ("GLIBC_2.34", Some(Glibc(2, 34))),
            ("GLIBC_2.3.4", Some(Glibc(2, 3))),
            ("GLIBC_ABI_DT_RELR", Some(Glibc(2, 36))),
            ("GLIBC_PRIVATE", None),
            ("GCC_4.2.0", None),
        ] {
            assert_eq!(glibc(version), expected, "{version}");
        }
        assert!(Glibc(2, 4) < Glibc(2, 35) && Glibc(2, 35) < Glibc(2, 36));
    }

    #[test]
    fn a_large_program_is_refused_with_the_cure() {
        assert_eq!(check_size(15_000_000), Ok(()));
        let refusal = check_size(15_000_001).unwrap_err();
        assert!(
            refusal.starts_with("has 15.1 MB, and the limit is 15.0 MB: set `strip = true`"),
            "{refusal}"
        );
    }
}
