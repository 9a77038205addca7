//! `cargo xtask modules`: checks that no two modules of a crate import each other, and no lower
//! layer a higher one.

mod graph;
mod tokens;
mod tree;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

use crate::command::{Failure, root, say};

use graph::{Circle, Place, Siblings};
use tree::Tree;

/// The number of places printed per edge.
const PLACES_MAX: usize = 3;

/// The top-level modules of a crate, from the lowest layer to the highest. A module imports those
/// of lower layers, and those of its own as far as that makes no circle. Every module is listed.
const LAYERS: &[(&str, &[&[&str]])] = &[
    (
        "reprieve-core",
        &[
            // Time, chance and tasks, which a simulation replaces; and what depends on nothing.
            &[
                "chance",
                "clock",
                "codec",
                "hash",
                "mutex",
                "panics",
                "process",
                "run_clock",
                "shorten",
                "telemetry",
                "watch",
            ],
            // The values that ports and formats consist of.
            &[
                "checkpoint",
                "child_ids",
                "deadline",
                "dependency",
                "error",
                "estimate",
                "ids",
                "names",
                "notice",
                "pressure",
                "queue_name",
                "report",
                "retry",
            ],
            &["ports"],
            &["envelope", "ledger", "record"],
            // Decisions without I/O.
            &["healing", "interruption"],
            // What a team implements and uses.
            &["saving", "shared_state", "time_limit", "turns", "wait_time"],
            &["context", "job"],
            &["attachment", "compute", "files", "long_step"],
            &["cancel", "children", "job_end", "producer", "redrive", "retention", "shards"],
            &["worker"],
            &["conformance", "memory"],
            &["testing"],
        ],
    ),
    (
        "reprieve-plan",
        &[
            &["money", "words"],
            // What is known: the work, and Spot.
            &[
                "availability",
                "checkpoint",
                "generated",
                "history",
                "lifetime",
                "measured",
                "support",
                "task",
                "vm_state",
            ],
            // Where the work runs, as pure functions.
            &["policy"],
            &["fleet", "safety"],
            &["omniscient", "replay"],
            &["compare", "plan"],
        ],
    ),
];

/// A violation in one crate.
#[derive(Debug)]
enum Finding {
    Circle(Circle),
    /// A module of a lower layer imports one of a higher.
    Upward {
        from: String,
        to: String,
        places: Vec<Place>,
    },
    /// A module that no layer lists.
    Unlisted(String),
    /// A layer lists a module that is not there.
    Missing(String),
}

/// Prints the violations in all crates, or in the named one.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let wanted = match arguments {
        [] => None,
        [flag, name] if flag == "--crate" => Some(name.as_str()),
        _ => return Err(Failure::usage("modules takes `--crate NAME` or nothing")),
    };
    let roots = crate_roots(root()).map_err(|error| Failure::Failed(error.to_string()))?;
    let roots: Vec<_> =
        roots.into_iter().filter(|(name, _)| wanted.is_none_or(|wanted| wanted == name)).collect();
    if roots.is_empty() {
        return Err(Failure::usage(format!("there is no crate {:?}", wanted.unwrap_or_default())));
    }
    let mut count = 0;
    for (name, file) in roots {
        let findings = check(&name, &file).map_err(|error| Failure::Failed(error.to_string()))?;
        count += findings.len();
        for finding in findings {
            say(&format!("{}: {finding}", shown(&file)));
        }
    }
    match count {
        0 => Ok(()),
        count => Err(Failure::Failed(format!("{count} findings in the graph of modules"))),
    }
}

/// Returns all violations in the crate with the root `file`.
fn check(name: &str, file: &Path) -> io::Result<Vec<Finding>> {
    let tree = Tree::read(file)?;
    let edges = graph::edges(&tree, root());
    let mut findings: Vec<_> = graph::circles(&edges).into_iter().map(Finding::Circle).collect();
    let layers = LAYERS.iter().find(|(listed, _)| *listed == name);
    if let Some((_, layers)) = layers.filter(|_| file.ends_with("lib.rs")) {
        let top = tree.modules[0].children.keys().map(String::as_str).collect();
        findings.extend(check_layers(layers, &top, edges.get("").unwrap_or(&Siblings::new())));
    }
    Ok(findings)
}

fn check_layers(layers: &[&[&str]], modules: &BTreeSet<&str>, edges: &Siblings) -> Vec<Finding> {
    let layer = |module: &str| layers.iter().position(|layer| layer.contains(&module));
    let mut findings = Vec::new();
    for ((from, to), places) in edges {
        if layer(from).zip(layer(to)).is_some_and(|(from, to)| from < to) {
            findings.push(Finding::Upward { from: from.clone(), to: to.clone(), places: places.clone() });
        }
    }
    let unlisted = modules.iter().filter(|module| layer(module).is_none());
    findings.extend(unlisted.map(|module| Finding::Unlisted((*module).to_owned())));
    let missing = layers.iter().copied().flatten().filter(|module| !modules.contains(*module));
    findings.extend(missing.map(|module| Finding::Missing((*module).to_owned())));
    findings
}

/// The roots of all crates of the workspace, libraries and programs, by the name of their package.
fn crate_roots(repository: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let mut packages = vec![repository.join("tests"), repository.join("tests/azurite")];
    for directory in ["crates", "examples"] {
        packages.extend(entries(&repository.join(directory))?);
    }
    packages.sort();
    let mut roots = Vec::new();
    for package in packages {
        let name = package.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let src = package.join("src");
        let mut files = vec![src.join("lib.rs"), src.join("main.rs")];
        for program in entries(&src.join("bin")).unwrap_or_default() {
            files.push(if program.is_dir() { program.join("main.rs") } else { program });
        }
        roots.extend(files.into_iter().filter(|file| file.is_file()).map(|file| (name.clone(), file)));
    }
    Ok(roots)
}

fn entries(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(directory)?.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
    entries.sort();
    Ok(entries)
}

/// The file's path in the repository.
fn shown(file: &Path) -> String {
    file.strip_prefix(root()).unwrap_or(file).display().to_string()
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Circle(Circle { parent, members, edges }) => {
                let members: Vec<_> = members.iter().map(String::as_str).collect();
                let separator = if parent.is_empty() { "" } else { "::" };
                write!(f, "circle of {parent}{separator}{{{}}}", members.join(", "))?;
                edges.iter().try_for_each(|((from, to), places)| write_edge(f, from, to, places))
            }
            Self::Upward { from, to, places } => {
                f.write_str("a lower layer imports a higher one")?;
                write_edge(f, from, to, places)
            }
            Self::Unlisted(module) => write!(f, "module `{module}` is in no layer; add it to LAYERS"),
            Self::Missing(module) => write!(f, "there is no module `{module}`; remove it from LAYERS"),
        }
    }
}

fn write_edge(f: &mut fmt::Formatter<'_>, from: &str, to: &str, places: &[Place]) -> fmt::Result {
    write!(f, "\n  {from} → {to}")?;
    for Place { file, line, path } in places.iter().take(PLACES_MAX) {
        write!(f, "\n    {file}:{line}  {path}")?;
    }
    match places.len().saturating_sub(PLACES_MAX) {
        0 => Ok(()),
        more => write!(f, "\n    and {more} more"),
    }
}

#[cfg(test)]
mod tests;
