//! The peers: what each needs to be installed, and how it is run. They say so themselves, in `peers/NAME/peer.json`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use tokio::process::Command;

use crate::noop::Figures;
use crate::process::{Process, last_lines};

/// How long one command of an installation may take: the longest builds a release of apalis.
const INSTALLING: Duration = Duration::from_mins(30);

/// How long a throughput run may take. The peers have limits of their own; this is for one that hangs.
const MEASURING: Duration = Duration::from_mins(15);

/// How long enqueueing one job or starting a server may take.
const STARTING: Duration = Duration::from_mins(1);

/// A peer that can be run.
#[derive(Debug)]
pub(crate) struct Peer {
    /// The name of its directory.
    pub(crate) id: String,
    manifest: Manifest,
    source: PathBuf,
    install: PathBuf,
}

/// What a peer says of itself.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    name: String,
    version: String,
    /// One line: which backend, which settings.
    what: String,
    /// Commands that install it. They are run every time, and are quick when there is nothing to do.
    install: Vec<Vec<String>>,
    run: Vec<String>,
    /// Whether it has a server, which must run for it to enqueue and to work.
    #[serde(default)]
    serve: bool,
    /// Whether it works on a storage account, and takes part in nothing else.
    #[serde(default)]
    storage: bool,
}

/// The directories of all peers in `sources`, in order.
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
    /// The peer of the directory `source`, to be installed below `installs`.
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

    /// One line for whoever reads the results.
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

    /// Enqueues no-op jobs and drains them with so many processes.
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
        let said = process.output(MEASURING).await?;
        figures(&said)
    }

    /// Enqueues one job that ticks.
    pub(crate) async fn enqueue(&self, directory: &Path, ticks: u64, tick_ms: u64) -> Result<()> {
        let (ticks, tick_ms) = (ticks.to_string(), tick_ms.to_string());
        let command = self.run(&["enqueue", "--ticks", &ticks, "--tick-ms", &tick_ms], directory)?;
        let mut process = Process::start(command, &directory.join("enqueue.log"))?;
        let status = process.ended(STARTING).await?;
        ensure!(status.success(), "enqueueing ended with {status}: {}", process.last_words());
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
        // A program of its own, as opposed to one that is looked for on the PATH. Said as a whole path, because whose
        // directory a relative one starts from depends on the platform.
        let program = if program.contains('/') { self.install.join(program) } else { program.into() };
        let mut command = Command::new(program);
        command.args(rest.iter().map(filled)).args(arguments).current_dir(&self.install);
        Ok(command)
    }
}

/// The last line that a peer said is what it measured.
fn figures(said: &str) -> Result<Figures> {
    let line = said.lines().rfind(|line| !line.trim().is_empty()).context("it said nothing")?;
    serde_json::from_str(line).with_context(|| format!("it said {line:?}, which are no figures"))
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
    async fn a_peer_is_installed_and_run_as_it_says() {
        let directory = tempfile::tempdir().unwrap();
        let source = peer(
            directory.path(),
            r#"{"name": "echo", "version": "2", "what": "echo 2 on paper",
                "install": [["cp", "{peer}/peer.json", "{install}/installed"]],
                "run": ["sh", "-c", "echo \"$@\" >$0; echo '{\"enqueue_seconds\": 2, \"drain_seconds\": 0.5, \"completed\": 9}'", "{install}/said"]}"#,
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
        let said = fs::read_to_string(directory.path().join("installs/echo/said")).unwrap();
        let directory = directory.path().display();
        assert_eq!(said.trim(), format!("throughput --jobs 9 --processes 4 --dir {directory}"));
    }

    #[tokio::test]
    async fn a_peer_that_can_t_be_installed_says_which_command_failed() {
        let directory = tempfile::tempdir().unwrap();
        let source = peer(
            directory.path(),
            r#"{"name": "e", "version": "2", "what": "e", "install": [["sh", "-c", "echo no net; exit 4"]], "run": ["x"]}"#,
        );
        let error = Peer::read(&source, directory.path()).unwrap().install().await.unwrap_err().to_string();
        assert_eq!(error, "`sh -c echo no net; exit 4` failed with exit status: 4: no net");
    }

    #[tokio::test]
    async fn a_peer_on_storage_is_told_where_that_is() {
        let directory = tempfile::tempdir().unwrap();
        let source = peer(
            directory.path(),
            r#"{"name": "e", "version": "2", "what": "e", "install": [], "storage": true,
                "run": ["sh", "-c", "echo \"$@\" >$0; echo '{\"enqueue_seconds\": 1, \"drain_seconds\": 1, \"completed\": 5}'", "{install}/said"]}"#,
        );
        let peer = Peer::read(&source, &directory.path().join("installs")).unwrap();
        assert!(peer.is_on_storage());
        peer.install().await.unwrap();
        let figures = peer.storage(directory.path(), 5, "http://127.0.0.1:1/a").await.unwrap();
        assert_eq!(figures.completed, 5);
        let said = fs::read_to_string(directory.path().join("installs/echo/said")).unwrap();
        let directory = directory.path().display();
        assert_eq!(said.trim(), format!("storage --jobs 5 --queues http://127.0.0.1:1/a --dir {directory}"));
    }

    #[test]
    fn what_is_no_figures_is_quoted() {
        assert_eq!(figures("").unwrap_err().to_string(), "it said nothing");
        assert_eq!(figures("a\nb\n").unwrap_err().to_string(), "it said \"b\", which are no figures");
        assert!(
            figures("warming up\n{\"enqueue_seconds\":1,\"drain_seconds\":1,\"completed\":1}\n\n").is_ok()
        );
    }
}
