//! The peers: how to install and run them. Each peer's `peers/NAME/peer.json` describes it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use tokio::process::Command;

use crate::noop::Figures;
use crate::process::{Process, last_lines};

/// The time limit of one installation command: the longest builds apalis in release mode.
const INSTALLING: Duration = Duration::from_mins(30);

/// The time limit of a throughput run. Peers have limits of their own; this one ends a peer that
/// hangs.
const MEASURING: Duration = Duration::from_mins(15);

/// The time limit of enqueueing one job or of starting a server.
const STARTING: Duration = Duration::from_mins(1);

/// An installed peer.
#[derive(Debug)]
pub(crate) struct Peer {
    /// The name of its directory.
    pub(crate) id: String,
    manifest: Manifest,
    source: PathBuf,
    install: PathBuf,
}

/// A peer's own description, from its `peer.json`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    name: String,
    version: String,
    /// Its backend and settings, in one line.
    what: String,
    /// The installation commands. They run every time, and are quick when it is installed.
    install: Vec<Vec<String>>,
    run: Vec<String>,
    /// Whether it has a server, which must run while it enqueues and works.
    #[serde(default)]
    serve: bool,
    /// Whether it works on a storage account. Such a peer takes part in nothing else.
    #[serde(default)]
    storage: bool,
}

/// Returns the directories of all peers in `sources`, in order.
pub(crate) fn directories(sources: &Path) -> Result<Vec<PathBuf>> {
    let listed = fs::read_dir(sources).with_context(|| format!("{} can't be read", sources.display()))?;
    let mut directories = Vec::new();
    for entry in listed {
        let path = entry?.path();
        if path.join("peer.json").is_file() {
            directories.push(path);
        }
    }
    directories.sort();
    Ok(directories)
}

impl Peer {
    /// Reads the peer in the directory `source`, which installs below `installs`.
    pub(crate) fn read(source: &Path, installs: &Path) -> Result<Self> {
        let id = source.file_name().context("a peer without a name")?.to_string_lossy().into_owned();
        let manifest = fs::read(source.join("peer.json"))?;
        let manifest: Manifest = serde_json::from_slice(&manifest)
            .with_context(|| format!("the peer.json of {id} is not as it should be"))?;
        Ok(Self { install: installs.join(&id), id, manifest, source: source.to_owned() })
    }

    /// Installs it.
    pub(crate) async fn install(&self) -> Result<()> {
        fs::create_dir_all(&self.install)?;
        for words in &self.manifest.install {
            let log = self.install.join("install.log");
            let command = self.command(words, &[])?;
            let mut process = Process::start(command, &log)?;
            let status = process.ended(INSTALLING).await?;
            ensure!(status.success(), "`{}` failed with {status}: {}", words.join(" "), last_lines(&log));
        }
        Ok(())
    }

    /// Describes the peer in one line of the results.
    pub(crate) fn what(&self) -> String {
        let Manifest { name, version, what, .. } = &self.manifest;
        if what.contains(version) { what.clone() } else { format!("{name} {version}: {what}") }
    }

    pub(crate) const fn has_server(&self) -> bool {
        self.manifest.serve
    }

    /// Whether it works on a storage account.
    pub(crate) const fn is_on_storage(&self) -> bool {
        self.manifest.storage
    }

    /// Enqueues no-op jobs on the storage account at `queues`, and drains them.
    pub(crate) async fn storage(&self, directory: &Path, jobs: usize, queues: &str) -> Result<Figures> {
        let arguments = ["storage", "--jobs", &jobs.to_string(), "--queues", queues];
        self.measure(&arguments, directory).await
    }

    /// Enqueues no-op jobs and drains them with this number of processes.
    pub(crate) async fn throughput(
        &self,
        directory: &Path,
        jobs: usize,
        processes: usize,
    ) -> Result<Figures> {
        let (jobs, processes) = (jobs.to_string(), processes.to_string());
        self.measure(&["throughput", "--jobs", &jobs, "--processes", &processes], directory).await
    }

    async fn measure(&self, arguments: &[&str], directory: &Path) -> Result<Figures> {
        let mut process =
            Process::start_piped(self.run(arguments, directory)?, &directory.join("stderr.log"))?;
        let output = process.output(MEASURING).await?;
        figures(&output)
    }

    /// Enqueues one job that ticks.
    pub(crate) async fn enqueue(&self, directory: &Path, ticks: u64, tick_ms: u64) -> Result<()> {
        let (ticks, tick_ms) = (ticks.to_string(), tick_ms.to_string());
        let command = self.run(&["enqueue", "--ticks", &ticks, "--tick-ms", &tick_ms], directory)?;
        let mut process = Process::start(command, &directory.join("enqueue.log"))?;
        let status = process.ended(STARTING).await?;
        ensure!(status.success(), "enqueueing ended with {status}: {}", process.log_tail());
        Ok(())
    }

    /// Starts a worker.
    pub(crate) fn work(&self, directory: &Path, log: &str) -> Result<Process> {
        let mut command = self.run(&["work"], directory)?;
        command.stdin(Stdio::null());
        Process::start(command, &directory.join(log))
    }

    /// Starts its server, which ends when it is dropped.
    pub(crate) async fn serve(&self, directory: &Path) -> Result<Process> {
        let command = self.run(&["serve"], directory)?;
        let mut server = Process::start_piped(command, &directory.join("server.log"))?;
        server.first_line(STARTING).await?;
        Ok(server)
    }

    fn run(&self, arguments: &[&str], directory: &Path) -> Result<Command> {
        let mut command = self.command(&self.manifest.run, arguments)?;
        command.arg("--dir").arg(directory);
        Ok(command)
    }

    fn command(&self, words: &[String], arguments: &[&str]) -> Result<Command> {
        let filled = |word: &String| {
            word.replace("{peer}", &self.source.to_string_lossy())
                .replace("{install}", &self.install.to_string_lossy())
        };
        let Some((program, rest)) = words.split_first() else { bail!("its peer.json has an empty command") };
        let program = filled(program);
        // A relative path to the peer's own program. Make it absolute: platforms disagree about the
        // directory it is relative to.
        let program = if program.contains('/') { self.install.join(program) } else { program.into() };
        let mut command = Command::new(program);
        command.args(rest.iter().map(filled)).args(arguments).current_dir(&self.install);
        Ok(command)
    }
}

/// Reads the figures from the last line that a peer printed.
fn figures(output: &str) -> Result<Figures> {
    let line = output.lines().rfind(|line| !line.trim().is_empty()).context("it printed nothing")?;
    serde_json::from_str(line).with_context(|| format!("it printed {line:?} instead of figures"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(directory: &Path, json: &str) -> PathBuf {
        let source = directory.join("sources/echo");
        fs::create_dir_all(&source).unwrap();
        fs::write(source.join("peer.json"), json).unwrap();
        source
    }

    #[tokio::test]
    async fn a_peer_is_installed_and_run_by_its_own_commands() {
        let directory = tempfile::tempdir().unwrap();
        let source = peer(
            directory.path(),
            r#"{"name": "echo", "version": "2", "what": "echo 2 on paper",
                "install": [["cp", "{peer}/peer.json", "{install}/installed"]],
                "run": ["sh", "-c", "echo \"$@\" >$0; echo '{\"enqueue_seconds\": 2, \"drain_seconds\": 0.5, \"completed\": 9}'", "{install}/arguments"]}"#,
        );
        assert_eq!(directories(&directory.path().join("sources")).unwrap(), std::slice::from_ref(&source));
        let peer = Peer::read(&source, &directory.path().join("installs")).unwrap();
        peer.install().await.unwrap();
        assert_eq!(
            (peer.id.as_str(), peer.what().as_str(), peer.has_server()),
            ("echo", "echo 2 on paper", false)
        );
        assert!(directory.path().join("installs/echo/installed").is_file());
        let figures = peer.throughput(directory.path(), 9, 4).await.unwrap();
        assert_eq!((figures.completed, figures.drain_seconds), (9, 0.5));
        let arguments = fs::read_to_string(directory.path().join("installs/echo/arguments")).unwrap();
        let directory = directory.path().display();
        assert_eq!(arguments.trim(), format!("throughput --jobs 9 --processes 4 --dir {directory}"));
    }

    #[tokio::test]
    async fn a_failed_installation_names_the_command() {
        let directory = tempfile::tempdir().unwrap();
        let source = peer(
            directory.path(),
            r#"{"name": "e", "version": "2", "what": "e", "install": [["sh", "-c", "echo no net; exit 4"]], "run": ["x"]}"#,
        );
        let error = Peer::read(&source, directory.path()).unwrap().install().await.unwrap_err().to_string();
        assert_eq!(error, "`sh -c echo no net; exit 4` failed with exit status: 4: no net");
    }

    #[tokio::test]
    async fn a_peer_on_storage_gets_the_queues_url() {
        let directory = tempfile::tempdir().unwrap();
        let source = peer(
            directory.path(),
            r#"{"name": "e", "version": "2", "what": "e", "install": [], "storage": true,
                "run": ["sh", "-c", "echo \"$@\" >$0; echo '{\"enqueue_seconds\": 1, \"drain_seconds\": 1, \"completed\": 5}'", "{install}/arguments"]}"#,
        );
        let peer = Peer::read(&source, &directory.path().join("installs")).unwrap();
        assert!(peer.is_on_storage());
        peer.install().await.unwrap();
        let figures = peer.storage(directory.path(), 5, "http://127.0.0.1:1/a").await.unwrap();
        assert_eq!(figures.completed, 5);
        let arguments = fs::read_to_string(directory.path().join("installs/echo/arguments")).unwrap();
        let directory = directory.path().display();
        assert_eq!(
            arguments.trim(),
            format!("storage --jobs 5 --queues http://127.0.0.1:1/a --dir {directory}")
        );
    }

    #[test]
    fn invalid_figures_are_quoted() {
        assert_eq!(figures("").unwrap_err().to_string(), "it printed nothing");
        assert_eq!(figures("a\nb\n").unwrap_err().to_string(), "it printed \"b\" instead of figures");
        assert!(
            figures("warming up\n{\"enqueue_seconds\":1,\"drain_seconds\":1,\"completed\":1}\n\n").is_ok()
        );
    }
}
