//! The properties of the machine that affect figures. Unknown properties are empty.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};

/// A machine and its load.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Machine {
    pub(crate) cpu: String,
    pub(crate) cores: usize,
    pub(crate) ram_gib: f64,
    pub(crate) kernel: String,
    pub(crate) os: String,
    pub(crate) rustc: String,
    pub(crate) sqlite: String,
    /// The file system of the stores.
    pub(crate) filesystem: String,
    /// The measured commit; `-dirty` with uncommitted changes.
    pub(crate) commit: String,
    /// The load average of the minute before the run.
    pub(crate) load_before: f64,
}

impl Machine {
    /// Describes this machine, with its stores in `directory`.
    pub(crate) fn look(directory: &Path) -> Self {
        let (info, memory) = (text("/proc/cpuinfo"), text("/proc/meminfo"));
        let kib = field(&memory, "MemTotal", ':').trim_end_matches(" kB").parse::<f64>().unwrap_or_default();
        Self {
            cpu: field(&info, "model name", ':').to_owned(),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            ram_gib: (kib / 1024.0 / 1024.0 * 10.0).round() / 10.0,
            kernel: text("/proc/sys/kernel/osrelease").trim().to_owned(),
            os: field(&text("/etc/os-release"), "PRETTY_NAME", '=').trim_matches('"').to_owned(),
            rustc: first_line("rustc", &["--version"]),
            sqlite: rusqlite::version().to_owned(),
            filesystem: filesystem(&text("/proc/self/mounts"), directory).to_owned(),
            commit: first_line("git", &["describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]),
            load_before: text("/proc/loadavg")
                .split(' ')
                .next()
                .and_then(|load| load.parse().ok())
                .unwrap_or(0.0),
        }
    }

    /// Whether figures from both machines can be compared.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        (&self.cpu, self.cores, &self.filesystem) == (&other.cpu, other.cores, &other.filesystem)
    }

    /// Describes the machine, one property per line.
    pub(crate) fn lines(&self) -> Vec<String> {
        let ram = format!("{} GiB", self.ram_gib);
        let processor = format!("{}, {} cores", self.cpu, self.cores);
        let load = format!("{}", self.load_before);
        [
            ("processor", &processor),
            ("memory", &ram),
            ("system", &self.os),
            ("kernel", &self.kernel),
            ("file system", &self.filesystem),
            ("compiler", &self.rustc),
            ("SQLite", &self.sqlite),
            ("commit", &self.commit),
            ("load before", &load),
        ]
        .iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| format!("{name}: {value}"))
        .collect()
    }
}

fn text(file: &str) -> String {
    fs::read_to_string(file).unwrap_or_default()
}

/// Returns the value of the first line that begins with `name`.
fn field<'a>(text: &'a str, name: &str, sign: char) -> &'a str {
    let mut lines = text.lines().filter_map(|line| line.split_once(sign));
    lines.find(|(key, _)| key.trim() == name).map_or("", |(_, value)| value.trim())
}

/// Returns the first line that a command prints, run in this repository.
fn first_line(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).output();
    let output =
        output.ok().filter(|output| output.status.success()).map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&output).lines().next().unwrap_or_default().to_owned()
}

/// Returns the type of the file system that holds `directory`.
fn filesystem<'a>(mounts: &'a str, directory: &Path) -> &'a str {
    let mounts = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        Some((Path::new(words.next()?), words.next()?))
    });
    let above = mounts.filter(|(mounted, _)| directory.starts_with(mounted));
    // Of two mounts at one path the later one is visible.
    above.max_by_key(|(mounted, _)| mounted.components().count()).map_or("", |(_, kind)| kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_system_is_that_of_the_nearest_mount() {
        let mounts = "/dev/vda / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\nproc /proc proc rw 0 0\n/dev/b /tmp/b xfs rw 0 0\n";
        for (directory, kind) in
            [("/home/bench", "ext4"), ("/tmp/x", "tmpfs"), ("/tmp/b/c", "xfs"), ("/tmpest", "ext4")]
        {
            assert_eq!(filesystem(mounts, Path::new(directory)), kind, "{directory}");
        }
    }

    #[test]
    fn fields_are_found_by_their_whole_names() {
        let info = "processor\t: 0\nmodel name\t: A fast one\nmodel\t\t: 1\n";
        assert_eq!(field(info, "model name", ':'), "A fast one");
        assert_eq!(field(info, "name", ':'), "");
    }

    #[test]
    fn machines_are_alike_when_what_figures_hang_on_is() {
        let one = Machine { cpu: "A".to_owned(), cores: 2, commit: "1".to_owned(), ..Machine::default() };
        assert!(one.is_like(&Machine { commit: "2".to_owned(), ..one.clone() }));
        assert!(!one.is_like(&Machine { cores: 4, ..one.clone() }));
    }
}
