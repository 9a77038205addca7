//! `cargo xtask package`: the archive of the VM Application. The same inputs give the same bytes.

mod archive;
mod manifest;
mod options;
mod program;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use archive::{Entry, compress};
use manifest::Manifest;
use options::Options;
use program::Program;

use crate::command::{Failure, builds, root, say};

/// The name of the archive: `settings.packageFileName` of the application version.
const ARCHIVE: &str = "worker.tgz";
const MANIFEST: &str = "manifest.json";
const NAME: &str = "reprieve-worker";

/// The files of `infra/package` that a VM needs, with their modes.
const SCRIPTS: [(&str, u32); 6] = [
    ("install.sh", 0o755),
    ("lib.sh", 0o644),
    ("remove.sh", 0o755),
    ("systemd/reprieve-worker.service", 0o644),
    ("systemd/reprieve-worker@.service", 0o644),
    ("update.sh", 0o755),
];

/// The result of a run.
#[derive(Debug, PartialEq, Eq)]
struct Package {
    archive: PathBuf,
    sha256: String,
}

/// Writes the archive and its manifest, and prints the archive's checksum.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let options = options::parse(arguments)?;
    let out = match &options.out {
        Some(out) => out.clone(),
        None => builds()?.join("package"),
    };
    let Package { archive, sha256 } = package(&options, &root().join("infra/package"), &out)?;
    writeln!(io::stdout(), "{sha256}  {}", archive.display())
        .map_err(|error| Failure::Failed(format!("the checksum could not be written: {error}")))
}

fn package(options: &Options, scripts: &Path, out: &Path) -> Result<Package, Failure> {
    let (worker, program) = program(&options.bin, options)?;
    let mut entries = vec![Entry::new("bin/worker", 0o755, worker)];
    if let Some(path) = &options.cli {
        let (cli, its) = self::program(path, options)?;
        if its.architecture != program.architecture {
            return Err(Failure::Failed(format!(
                "{} is for {}, and {} is for {}",
                path.display(),
                its.architecture,
                options.bin.display(),
                program.architecture
            )));
        }
        entries.push(Entry::new("bin/reprieve", 0o755, cli));
    }
    for (path, mode) in SCRIPTS {
        entries.push(Entry::new(path, mode, read(&scripts.join(path))?));
    }
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    let manifest = Manifest { name: NAME, version: &options.version, program: &program, files: &entries };
    let manifest = manifest.to_string().into_bytes();
    let size: usize = entries.iter().map(|entry| entry.content.len()).sum();
    entries.push(Entry::new(MANIFEST, 0o644, manifest.clone()));
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    let bytes = compress(&entries, options.mtime)
        .map_err(|error| Failure::Failed(format!("the archive can't be made: {error}")))?;

    fs::create_dir_all(out)
        .map_err(|error| Failure::Failed(format!("{} can't be created: {error}", out.display())))?;
    let archive = out.join(ARCHIVE);
    replace(&archive, &bytes)?;
    replace(&out.join(MANIFEST), &manifest)?;
    say(&format!(
        "{NAME} {} for {}: {} unpacked, {} packed",
        options.version,
        program.architecture,
        megabytes(size),
        megabytes(bytes.len())
    ));
    Ok(Package { archive, sha256: manifest::sha256(&bytes) })
}

/// Reads and checks a program.
fn program(path: &Path, options: &Options) -> Result<(Vec<u8>, Program), Failure> {
    let bytes = read(path)?;
    let named = |problem: String| Failure::Failed(format!("{} {problem}", path.display()));
    let program = Program::read(&bytes).map_err(named)?;
    if !options.allow_large {
        program::check_size(bytes.len()).map_err(named)?;
    }
    Ok((bytes, program))
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(path).map_err(|error| Failure::Failed(format!("{} can't be read: {error}", path.display())))
}

/// Writes a file under another name first: an upload never sees half of it.
fn replace(path: &Path, content: &[u8]) -> Result<(), Failure> {
    let partial = path.with_extension("partial");
    fs::write(&partial, content)
        .and_then(|()| fs::rename(&partial, path))
        .map_err(|error| Failure::Failed(format!("{} can't be written: {error}", path.display())))
}

/// Returns a size in megabytes, with one digit.
fn megabytes(bytes: usize) -> String {
    let tenths = bytes.div_ceil(100_000);
    format!("{}.{} MB", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests;
