//! The journal of a job that ticks: lines of `<unix ms> <pid> <tick>`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// One line of the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tick {
    pub(crate) at_unix_ms: i64,
    pub(crate) pid: u32,
    /// The number of the tick in its job.
    pub(crate) number: u64,
}

/// Reads all ticks so far; none while there is no journal.
pub(crate) fn read(journal: &Path) -> Result<Vec<Tick>> {
    let text = match fs::read_to_string(journal) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(|| format!("{} can't be read", journal.display())),
    };
    text.lines()
        .map(|line| parse(line).with_context(|| format!("{line:?} in {} is no tick", journal.display())))
        .collect()
}

fn parse(line: &str) -> Option<Tick> {
    let mut words = line.split(' ');
    let tick = Tick {
        at_unix_ms: words.next()?.parse().ok()?,
        pid: words.next()?.parse().ok()?,
        number: words.next()?.parse().ok()?,
    };
    words.next().is_none().then_some(tick)
}

/// Returns the number of ticks that repeat an earlier one.
pub(crate) fn redone(ticks: &[Tick]) -> usize {
    ticks.len() - distinct(ticks)
}

/// Returns the number of different ticks.
pub(crate) fn distinct(ticks: &[Tick]) -> usize {
    ticks.iter().map(|tick| tick.number).collect::<BTreeSet<_>>().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_done_twice_are_counted_by_whomever_they_were_done() {
        let directory = tempfile::tempdir().unwrap();
        let journal = directory.path().join("journal");
        assert_eq!(read(&journal).unwrap(), []);
        fs::write(&journal, "1 7 0\n2 7 1\n3 8 1\n4 8 2\n").unwrap();
        let ticks = read(&journal).unwrap();
        assert_eq!(ticks[2], Tick { at_unix_ms: 3, pid: 8, number: 1 });
        assert_eq!((redone(&ticks), distinct(&ticks)), (1, 3));
    }

    #[test]
    fn a_line_that_is_no_tick_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let journal = directory.path().join("journal");
        for line in ["1 7", "1 7 0 0", "one 7 0"] {
            fs::write(&journal, line).unwrap();
            let error = read(&journal).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{line:?} in ")), "{error}");
        }
    }

    #[test]
    fn our_own_jobs_write_what_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let journal = directory.path().join("journal");
        crate::jobs::note(&journal, 4).unwrap();
        let ticks = read(&journal).unwrap();
        assert_eq!((ticks[0].pid, ticks[0].number), (std::process::id(), 4));
    }
}
