//! The bell: a file that is written when a message becomes receivable, so that idle processes need
//! not poll the database.
//!
//! It rings after the commit. Watching SQLite's write-ahead log instead would wake a reader before
//! the commit is visible, and every message would be found one message late.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

use tokio::sync::watch;

use crate::failure::{Failure, Outcome};

/// Rings for all processes.
#[derive(Debug)]
pub(crate) struct Bell(File);

impl Bell {
    pub(crate) fn open(path: &Path) -> Outcome<Self> {
        let opened = File::options().create(true).write(true).truncate(false).open(path);
        opened.map(Self).map_err(|error| Failure::io(&error, path))
    }

    pub(crate) fn ring(&self) {
        let mut file = &self.0;
        if let Err(error) = file.seek(SeekFrom::Start(0)).and_then(|_| file.write_all(b"!")) {
            // A lost ring delays a waiting worker until its next poll.
            tracing::debug!(%error, "failed to write the bell file; workers see the message at their next poll");
        }
    }
}

/// Counts the rings until it is dropped.
#[derive(Debug)]
pub(crate) struct Listener {
    #[expect(dead_code, reason = "it is kept only for what its drop does: it ends the thread")]
    ear: Ear,
}

#[derive(Debug)]
enum Ear {
    #[cfg(target_os = "linux")]
    Kernel {
        _ear: kernel::Ear,
    },
    Polling {
        _ear: polling::Ear,
    },
}

impl Listener {
    /// Starts a thread that adds one to `rings` whenever the bell at `path` rings.
    pub(crate) fn start(path: &Path, rings: watch::Sender<u64>) -> Outcome<Self> {
        #[cfg(target_os = "linux")]
        match kernel::Ear::start(path, rings.clone()) {
            Ok(ear) => return Ok(Self { ear: Ear::Kernel { _ear: ear } }),
            // By default Linux allows each user 128 inotify instances.
            Err(error) => tracing::debug!(%error, "inotify is not available; polling the bell file instead"),
        }
        let polling = polling::Ear::start(path, rings).map_err(|error| Failure::io(&error, path))?;
        Ok(Self { ear: Ear::Polling { _ear: polling } })
    }
}

#[cfg(target_os = "linux")]
mod kernel {
    //! Listens by inotify, which costs nothing while the bell is silent and reports a ring within a
    //! sixth of a millisecond.

    use std::io;
    use std::path::Path;

    use inotify::{EventMask, Inotify, WatchDescriptor, WatchMask, Watches};
    use tokio::sync::watch;

    #[derive(Debug)]
    pub(super) struct Ear {
        watches: Watches,
        bell: WatchDescriptor,
    }

    impl Ear {
        pub(super) fn start(path: &Path, rings: watch::Sender<u64>) -> io::Result<Self> {
            let mut inotify = Inotify::init()?;
            let mut watches = inotify.watches();
            let bell = watches.add(path, WatchMask::MODIFY)?;
            std::thread::Builder::new().name("reprieve-bell".to_owned()).spawn(move || {
                let mut buffer = [0; 1024];
                loop {
                    match inotify.read_events_blocking(&mut buffer) {
                        Ok(events) => {
                            let mut over = false;
                            events.for_each(|event| over |= event.mask.contains(EventMask::IGNORED));
                            if over {
                                return;
                            }
                            rings.send_modify(|count| *count += 1);
                        }
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                        Err(error) => {
                            tracing::warn!(%error, "failed to watch the bell file; polling for new messages");
                            return;
                        }
                    }
                }
            })?;
            Ok(Self { watches, bell })
        }
    }

    impl Drop for Ear {
        /// Removing the watch causes an event (`IGNORED`), which ends the thread. So does removing
        /// the file.
        fn drop(&mut self) {
            if let Err(error) = self.watches.remove(self.bell.clone()) {
                tracing::debug!(%error, "the bell file was no longer watched");
            }
        }
    }
}

mod polling {
    //! Listens without inotify, by checking every 20 ms whether the bell was written.

    use std::io;
    use std::path::Path;
    use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
    use std::time::Duration;

    use tokio::sync::watch;

    const EVERY: Duration = Duration::from_millis(20);

    #[derive(Debug)]
    pub(super) struct Ear {
        _stop: Sender<()>,
    }

    impl Ear {
        pub(super) fn start(path: &Path, rings: watch::Sender<u64>) -> io::Result<Self> {
            let path = path.to_owned();
            let (stop, stopped) = channel();
            let touched = move || std::fs::metadata(&path).and_then(|bell| bell.modified()).ok();
            let mut last = touched();
            std::thread::Builder::new().name("reprieve-bell".to_owned()).spawn(move || {
                while stopped.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                    let now = touched();
                    if now != last {
                        last = now;
                        rings.send_modify(|count| *count += 1);
                    }
                }
            })?;
            Ok(Self { _stop: stop })
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn rings_are_heard(listen: impl FnOnce(&Path, watch::Sender<u64>) -> Listener) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bell");
        let bell = Bell::open(&path).unwrap();
        let rings = watch::Sender::new(0);
        let mut heard = rings.subscribe();
        let listener = listen(&path, rings.clone());
        for _ in 0..3 {
            bell.ring();
            tokio::time::timeout(Duration::from_secs(5), heard.changed())
                .await
                .expect("the bell is heard")
                .unwrap();
        }
        drop(listener);
        let ended = async {
            while rings.sender_count() > 1 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(5), ended).await.expect("the thread ends with its listener");
    }

    #[tokio::test]
    async fn the_bell_is_heard() {
        rings_are_heard(|path, rings| Listener::start(path, rings).unwrap()).await;
    }

    #[tokio::test]
    async fn the_bell_is_heard_without_help_from_the_kernel() {
        rings_are_heard(|path, rings| {
            let ear = polling::Ear::start(path, rings).unwrap();
            Listener { ear: Ear::Polling { _ear: ear } }
        })
        .await;
    }
}
