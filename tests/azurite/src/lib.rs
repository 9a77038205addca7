//! Runs Azurite, the storage emulator, as a child process that cannot outlive this one.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// The longest time until Azurite listens: it loads some thousand files first, and the machine may
/// be busy.
const START_LIMIT: Duration = Duration::from_secs(60);

/// The longest time until it ends: it first writes its memory to files.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// The account that Azurite always has.
pub const ACCOUNT: &str = "devstoreaccount1";

/// That account's key: [the same everywhere, and no secret][key].
///
/// [key]: https://learn.microsoft.com/azure/storage/common/storage-connect-azurite
pub const KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// Options for running Azurite.
#[derive(Debug, Clone)]
pub struct Options {
    /// The directory of its data.
    pub directory: PathBuf,
    /// Whether it deletes the directory when it ends, for any reason.
    pub discard: bool,
    /// The ports; 0 is any free one.
    pub ports: Ports,
    /// A certificate, to listen on HTTPS only. Over HTTPS it also accepts tokens.
    pub tls: Option<Tls>,
}

/// The ports of its two services, on 127.0.0.1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ports {
    /// The port of the blob service.
    pub blob: u16,
    /// The port of the queue service.
    pub queue: u16,
}

/// A certificate for 127.0.0.1, as PEM files.
#[derive(Debug, Clone)]
pub struct Tls {
    /// The certificate.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// A running Azurite. It ends when this is dropped, and when this process ends, even by SIGKILL: it
/// reads the other end of a pipe.
#[derive(Debug)]
pub struct Azurite {
    child: Child,
    /// Closing this pipe asks Azurite to end.
    lifeline: Option<ChildStdin>,
    output: Receiver<String>,
    ports: Ports,
    tls: bool,
}

/// Returns the directory of its package and lock file.
#[must_use]
pub fn package() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Returns whether its package is installed.
#[must_use]
pub fn is_installed() -> bool {
    package().join("node_modules/azurite").is_dir()
}

impl Azurite {
    /// Starts Azurite, and returns when it listens.
    ///
    /// # Errors
    /// Node.js is missing, or Azurite does not report that it listens.
    pub fn start(options: &Options) -> io::Result<Self> {
        let mut command = Command::new("node");
        command.arg(package().join("serve.cjs")).args(arguments(options));
        if options.discard {
            command.env("REPRIEVE_AZURITE_DISCARDS", &options.directory);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command
            .spawn()
            .map_err(|error| io::Error::other(format!("node could not be started: {error}")))?;
        let lifeline = child.stdin.take();
        let output = lines(child.stdout.take());
        let mut azurite =
            Self { child, lifeline, output, ports: Ports::default(), tls: options.tls.is_some() };
        azurite.ports.blob = azurite.listens("Blob")?;
        azurite.ports.queue = azurite.listens("Queue")?;
        // The last of its services. Only from now on does it handle signals.
        azurite.listens("Table")?;
        Ok(azurite)
    }

    /// Returns its ports.
    #[must_use]
    pub const fn ports(&self) -> Ports {
        self.ports
    }

    /// Returns its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the connection string: over HTTP with the account's key, over HTTPS without, because
    /// there clients send a token.
    #[must_use]
    pub fn connection_string(&self) -> String {
        let Ports { blob, queue } = self.ports;
        let (scheme, key) =
            if self.tls { ("https", String::new()) } else { ("http", format!("AccountKey={KEY};")) };
        format!(
            "DefaultEndpointsProtocol={scheme};AccountName={ACCOUNT};{key}\
             BlobEndpoint={scheme}://127.0.0.1:{blob}/{ACCOUNT};QueueEndpoint={scheme}://127.0.0.1:{queue}/{ACCOUNT}"
        )
    }

    /// Ends Azurite by SIGTERM, so that it writes its memory to files, and returns when it has
    /// ended.
    ///
    /// # Errors
    /// It had to be killed, or ended with an error.
    pub fn stop(mut self) -> io::Result<()> {
        match self.end()? {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(io::Error::other(format!("Azurite ended with {status}"))),
            None => {
                Err(io::Error::other(format!("Azurite did not end within {STOP_LIMIT:?} and was killed")))
            }
        }
    }

    /// Waits until `service` reports its address, and returns its port.
    fn listens(&self, service: &str) -> io::Result<u16> {
        let beginning = format!("Azurite {service} service is successfully listening at ");
        loop {
            let line = self.output.recv_timeout(START_LIMIT).map_err(|error| {
                io::Error::other(match error {
                    RecvTimeoutError::Timeout => format!("Azurite did not answer within {START_LIMIT:?}"),
                    RecvTimeoutError::Disconnected => "Azurite ended before it answered".to_owned(),
                })
            })?;
            if let Some(address) = line.strip_prefix(&beginning) {
                return port(address).ok_or_else(|| {
                    io::Error::other(format!("Azurite reported the address {address}, which has no port"))
                });
            }
        }
    }

    /// Asks Azurite to end and waits; returns `None` if it took too long and was killed.
    fn end(&mut self) -> io::Result<Option<ExitStatus>> {
        drop(self.lifeline.take());
        loop {
            match self.output.recv_timeout(STOP_LIMIT) {
                // Output while it ends.
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => return self.child.wait().map(Some),
                Err(RecvTimeoutError::Timeout) => {
                    self.child.kill()?;
                    return self.child.wait().map(|_| None);
                }
            }
        }
    }
}

impl Drop for Azurite {
    fn drop(&mut self) {
        // `stop` reports errors; this only cleans up.
        let _ended = self.end();
    }
}

fn arguments(options: &Options) -> Vec<OsString> {
    let Ports { blob, queue } = options.ports;
    let mut arguments: Vec<OsString> = vec![
        "--blobPort".into(),
        blob.to_string().into(),
        "--queuePort".into(),
        queue.to_string().into(),
        // The table service is not used.
        "--tablePort".into(),
        "0".into(),
        "--location".into(),
        options.directory.clone().into(),
        // Clients may request a version that this Azurite does not know yet.
        "--skipApiVersionCheck".into(),
        "--silent".into(),
        "--disableTelemetry".into(),
    ];
    if let Some(Tls { certificate, key }) = &options.tls {
        arguments.extend(["--cert".into(), certificate.into(), "--key".into(), key.into()]);
        arguments.extend(["--oauth".into(), "basic".into()]);
    }
    arguments
}

/// Returns the lines of `output` as they arrive; the channel ends with the output.
fn lines(output: Option<ChildStdout>) -> Receiver<String> {
    let (sender, receiver) = channel();
    if let Some(output) = output {
        thread::spawn(move || {
            // Read to the end even without a receiver: a full pipe would block Azurite.
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let _no_receiver = sender.send(line);
            }
        });
    }
    receiver
}

/// Returns the port of `http://HOST:PORT`.
fn port(address: &str) -> Option<u16> {
    address.trim().rsplit_once(':')?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_read_from_an_address() {
        for (address, expected) in [
            ("http://127.0.0.1:10000", Some(10000)),
            ("https://127.0.0.1:65535\r", Some(65535)),
            ("http://127.0.0.1", None),
            ("", None),
        ] {
            assert_eq!(port(address), expected, "{address:?}");
        }
    }
}
