//! The operating system's stop signals.

use std::io;

use reprieve_core::{Error, ErrorKind, Result};

/// Returns a future that resolves to a signal's name when the operating system asks the process to
/// stop: SIGTERM, SIGINT, or on Windows Ctrl-C, Ctrl-Break, the console's close or the system's
/// shutdown. For a program's own servers; a worker listens for these signals itself.
///
/// After this call the signals no longer end the process by themselves.
///
/// # Errors
/// [`Internal`](ErrorKind::Internal) when the operating system refuses the signal handlers.
///
/// # Panics
/// Outside a Tokio runtime.
pub fn stop_signal() -> Result<impl Future<Output = &'static str>> {
    let mut signals = Signals::listen()?;
    Ok(async move { signals.next().await })
}

/// Listens for SIGTERM and SIGINT; on Windows for Ctrl-C, Ctrl-Break, the console's close and the
/// system's shutdown.
#[derive(Debug)]
pub(crate) struct Signals {
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
    #[cfg(windows)]
    ctrl_c: tokio::signal::windows::CtrlC,
    #[cfg(windows)]
    ctrl_break: tokio::signal::windows::CtrlBreak,
    #[cfg(windows)]
    ctrl_close: tokio::signal::windows::CtrlClose,
    #[cfg(windows)]
    ctrl_shutdown: tokio::signal::windows::CtrlShutdown,
}

#[cfg(unix)]
impl Signals {
    /// Registers the handlers. After this call the signals no longer end the process by themselves.
    pub(crate) fn listen() -> Result<Self> {
        Self::open().map_err(|error| {
            Error::new(ErrorKind::Internal, "listen for signals", error.to_string()).with_source(error)
        })
    }

    fn open() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for the next signal and returns its name. Cancel-safe.
    pub(crate) async fn next(&mut self) -> &'static str {
        tokio::select! {
            Some(()) = self.terminate.recv() => "SIGTERM",
            Some(()) = self.interrupt.recv() => "SIGINT",
            else => std::future::pending().await,
        }
    }
}

#[cfg(windows)]
impl Signals {
    /// Registers the handlers. After this call the signals no longer end the process by themselves.
    pub(crate) fn listen() -> Result<Self> {
        Self::open().map_err(|error| {
            Error::new(ErrorKind::Internal, "listen for signals", error.to_string()).with_source(error)
        })
    }

    fn open() -> io::Result<Self> {
        use tokio::signal::windows::{ctrl_break, ctrl_c, ctrl_close, ctrl_shutdown};
        Ok(Self {
            ctrl_c: ctrl_c()?,
            ctrl_break: ctrl_break()?,
            ctrl_close: ctrl_close()?,
            ctrl_shutdown: ctrl_shutdown()?,
        })
    }

    /// Waits for the next signal and returns its name. Cancel-safe.
    pub(crate) async fn next(&mut self) -> &'static str {
        tokio::select! {
            Some(()) = self.ctrl_c.recv() => "Ctrl-C",
            Some(()) = self.ctrl_break.recv() => "Ctrl-Break",
            Some(()) = self.ctrl_close.recv() => "console closed",
            Some(()) = self.ctrl_shutdown.recv() => "system shutdown",
            else => std::future::pending().await,
        }
    }
}
