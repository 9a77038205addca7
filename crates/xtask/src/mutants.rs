//! `cargo xtask mutants`: removes one guard of the worker at a time, and expects the simulation to
//! detect it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::command::{Failure, builds, root, say};
use crate::simulate::{BUILD, program};

/// The number of seeds that a mutant may survive.
const SEEDS: &str = "10000";

/// The directory of the patches, one for each mutant.
const PATCHES: &str = "crates/reprieve-sim/mutants";

/// The result for one mutant.
enum Verdict {
    /// The seed that detected it, and the broken promise.
    Found(String),
    Survived,
    /// The patch does not apply, or the patched tree does not build.
    Stale(&'static str),
}

/// Tries the named mutants, or all.
pub(crate) fn run(names: &[String]) -> Result<(), Failure> {
    let patches = patches(names)?;
    let place = builds()?.join("mutants");
    let tree = Tree { at: place.join("tree"), builds: place.join("target") };
    let mut bad = Vec::new();
    for patch in patches {
        let name = patch.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        tree.refresh()?;
        let (fate, took) = tree.try_one(&patch)?;
        match fate {
            Verdict::Found(how) => say(&format!("{name}: found in {:.1} s: {how}", took.as_secs_f64())),
            Verdict::Survived => {
                say(&format!("{name}: SURVIVED {SEEDS} seeds in {:.1} s", took.as_secs_f64()));
                bad.push(name);
            }
            Verdict::Stale(why) => {
                say(&format!("{name}: STALE, {why}"));
                bad.push(name);
            }
        }
    }
    if bad.is_empty() { Ok(()) } else { Err(Failure::Failed(format!("not found: {}", bad.join(", ")))) }
}

/// The patches, in the order of their names.
fn patches(names: &[String]) -> Result<Vec<PathBuf>, Failure> {
    let all = fs::read_dir(root().join(PATCHES)).map_err(|error| failed(PATCHES, &error))?;
    let mut all: Vec<PathBuf> = all.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
    all.retain(|path| path.extension().is_some_and(|extension| extension == "patch"));
    all.sort();
    if names.is_empty() {
        return Ok(all);
    }
    for name in names {
        if !all.iter().any(|path| path.file_stem().is_some_and(|stem| stem == name.as_str())) {
            return Err(Failure::usage(format!("there is no mutant {name:?} in {PATCHES}")));
        }
    }
    all.retain(|path| names.iter().any(|name| path.file_stem().is_some_and(|stem| stem == name.as_str())));
    Ok(all)
}

/// A copy of the working tree, and the directory of its builds.
struct Tree {
    at: PathBuf,
    builds: PathBuf,
}

impl Tree {
    /// Makes the copy equal to the working tree. Only changed files are written, so that little is
    /// built again.
    fn refresh(&self) -> Result<(), Failure> {
        let files = tracked(root())?;
        for file in &files {
            let (from, to) = (root().join(file), self.at.join(file));
            let Ok(bytes) = fs::read(&from) else { continue };
            if fs::read(&to).is_ok_and(|there| there == bytes) {
                continue;
            }
            if let Some(directory) = to.parent() {
                fs::create_dir_all(directory).map_err(|error| failed(file, &error))?;
            }
            fs::write(&to, bytes).map_err(|error| failed(file, &error))?;
        }
        let kept: BTreeSet<PathBuf> = files.iter().map(|file| self.at.join(file)).collect();
        remove_others(&self.at, &kept).map_err(|error| failed("the copied tree", &error))
    }

    /// Applies a patch, builds, and runs seeds until one finds it.
    fn try_one(&self, patch: &Path) -> Result<(Verdict, Duration), Failure> {
        let mut apply = Command::new("git");
        // The copy is not a repository, and must not be taken for a part of the one around it.
        apply.env("GIT_CEILING_DIRECTORIES", self.builds.parent().unwrap_or(&self.at));
        apply.args(["apply", "--whitespace=nowarn"]).arg(patch).current_dir(&self.at);
        if !succeeds(&mut apply)? {
            return Ok((Verdict::Stale("its patch does not apply"), Duration::ZERO));
        }
        let mut build = Command::new("cargo");
        build.args(BUILD).args(["--quiet", "--target-dir"]).arg(&self.builds).current_dir(&self.at);
        if !succeeds(&mut build)? {
            return Ok((Verdict::Stale("it can't be built"), Duration::ZERO));
        }
        self.hunt()
    }

    fn hunt(&self) -> Result<(Verdict, Duration), Failure> {
        let mut simulate = Command::new(program(&self.builds));
        simulate.args(["--seeds", SEEDS]).stderr(Stdio::null());
        let ran = simulate.output().map_err(|error| failed("the simulation", &error))?;
        let out = String::from_utf8_lossy(&ran.stdout);
        let took =
            out.lines().rev().find_map(|line| line.strip_prefix("took ")?.strip_suffix(" ms")?.parse().ok());
        let took = Duration::from_millis(took.unwrap_or(0));
        let broken = out.lines().find(|line| line.starts_with("BROKEN "));
        let seed = out.lines().find(|line| line.starts_with("seed ")).unwrap_or_default();
        let seed = seed.split(':').next().unwrap_or_default();
        Ok(match (broken, ran.status.success()) {
            (Some(broken), _) => (Verdict::Found(format!("{seed}: {}", first(broken))), took),
            // It ended in a panic, or was stopped.
            (None, false) => (Verdict::Found("the simulation itself failed".to_owned()), took),
            (None, true) => (Verdict::Survived, took),
        })
    }
}

/// Returns the beginning of a line.
fn first(line: &str) -> String {
    line.chars().take(120).collect()
}

/// The files of the working tree: tracked files, and new ones that are not ignored.
fn tracked(root: &Path) -> Result<Vec<String>, Failure> {
    let mut list = Command::new("git");
    list.args(["ls-files", "--cached", "--others", "--exclude-standard", "-z"]).current_dir(root);
    let listed = list.output().map_err(|error| failed("git", &error))?;
    let names = String::from_utf8_lossy(&listed.stdout).into_owned();
    Ok(names.split('\0').filter(|name| !name.is_empty()).map(str::to_owned).collect())
}

/// Removes every file below `directory` that is not to be kept.
fn remove_others(directory: &Path, kept: &BTreeSet<PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            remove_others(&path, kept)?;
        } else if !kept.contains(&path) {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

fn succeeds(command: &mut Command) -> Result<bool, Failure> {
    let status = command.status().map_err(|error| failed("a command", &error))?;
    Ok(status.success())
}

fn failed(what: &str, error: &std::io::Error) -> Failure {
    Failure::Failed(format!("{what}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A patch that no longer applies proves nothing, and nobody notices before the next hunt.
    #[test]
    fn every_patch_applies_to_this_tree() {
        for patch in patches(&[]).unwrap() {
            let mut apply = Command::new("git");
            apply.args(["apply", "--check", "--whitespace=nowarn"]).arg(&patch).current_dir(root());
            assert!(succeeds(&mut apply).unwrap(), "{} is stale", patch.display());
        }
    }
}
