//! A TCP forwarder that plays a load balancer: one address, behind which servers come and go.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// What a forwarder does with connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Forwards to this port.
    To(u16),
    Refusing,
    Hanging,
    Ended,
}

/// Forwards a port of its own to a server on this machine. It works on threads, so that it needs no runtime and
/// no clock of a test. It ends with its test.
#[derive(Debug)]
pub struct Forwarder {
    port: u16,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    inner: Mutex<Inner>,
    changed: Condvar,
}

#[derive(Debug)]
struct Inner {
    mode: Mode,
    /// Both ends of each connection since they were closed last.
    streams: Vec<TcpStream>,
}

impl Forwarder {
    /// Begins to forward to `port`.
    ///
    /// # Panics
    /// When there is no free port.
    #[must_use]
    pub fn to(port: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let own = listener.local_addr().expect("a port").port();
        let inner = Mutex::new(Inner { mode: Mode::To(port), streams: Vec::new() });
        let state = Arc::new(State { inner, changed: Condvar::new() });
        let forwarder = Self { port: own, state: Arc::clone(&state) };
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if state.lock().mode == Mode::Ended {
                    return;
                }
                accept(&state, stream);
            }
        });
        forwarder
    }

    /// Its port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Closes all connections, and forwards new ones to `port`.
    pub fn switch(&self, port: u16) {
        self.state.set(Mode::To(port));
    }

    /// Forwards new connections to `port`, and leaves the others where they lead.
    pub fn lead(&self, port: u16) {
        self.state.lock().mode = Mode::To(port);
    }

    /// Closes all connections, and new ones at once.
    pub fn refuse(&self) {
        self.state.set(Mode::Refusing);
    }

    /// Passes nothing on, neither on old nor on new connections, and closes none.
    pub fn hang(&self) {
        self.state.set(Mode::Hanging);
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.state.set(Mode::Ended);
        // Wakes the thread that accepts.
        let _woken = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}

impl State {
    /// Sets the mode, and closes all connections unless they go on: before what was held up could be passed on.
    fn set(&self, mode: Mode) {
        let mut inner = self.lock();
        inner.mode = mode;
        if mode != Mode::Hanging {
            for stream in inner.streams.drain(..) {
                // It may be closed already.
                let _closed = stream.shutdown(Shutdown::Both);
            }
        }
        self.changed.notify_all();
    }

    /// Blocks while nothing is passed on.
    fn pass(&self) {
        let hangs = |inner: &mut Inner| inner.mode == Mode::Hanging;
        let _passed = self.changed.wait_while(self.lock(), hangs).unwrap_or_else(PoisonError::into_inner);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Connects a client where it belongs now. Dropping its stream closes it.
fn accept(state: &Arc<State>, client: TcpStream) {
    let mut inner = state.lock();
    match inner.mode {
        Mode::To(port) => {
            let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else { return };
            for (from, to) in [(&client, &server), (&server, &client)] {
                let (Ok(from), Ok(to), Ok(kept)) = (from.try_clone(), to.try_clone(), from.try_clone())
                else {
                    return;
                };
                inner.streams.push(kept);
                let state = Arc::clone(state);
                thread::spawn(move || copy(&state, from, to));
            }
        }
        Mode::Hanging => inner.streams.push(client),
        Mode::Refusing | Mode::Ended => {}
    }
}

fn copy(state: &State, mut from: TcpStream, mut to: TcpStream) {
    let mut buffer = [0; 16 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        state.pass();
        if to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    // Either may be closed already.
    let _closed = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

#[cfg(test)]
mod tests {
    use std::io::{self, ErrorKind};
    use std::time::Duration;

    use super::*;

    /// Starts a server that answers each byte with its own, and returns its port.
    fn server(own: u8) -> u16 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = listener.local_addr().expect("a port").port();
        thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                thread::spawn(move || {
                    while let Ok(1..) = stream.read(&mut [0]) {
                        stream.write_all(&[own]).expect("a reader");
                    }
                });
            }
        });
        port
    }

    fn ask(mut stream: &TcpStream) -> io::Result<u8> {
        stream.write_all(&[0])?;
        let mut answer = [0];
        stream.read_exact(&mut answer).map(|()| answer[0])
    }

    #[test]
    fn connections_are_passed_on_held_up_and_closed() {
        let forwarder = Forwarder::to(server(1));
        let connect = || {
            let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, forwarder.port())).expect("a connection");
            stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a time limit");
            stream
        };
        let old = connect();
        assert_eq!(ask(&old).expect("an answer"), 1);

        forwarder.hang();
        for stream in [&old, &connect()] {
            stream.set_read_timeout(Some(Duration::from_millis(50))).expect("a time limit");
            assert_eq!(ask(stream).expect_err("no answer").kind(), ErrorKind::WouldBlock);
            stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a time limit");
        }

        forwarder.switch(server(2));
        assert!(ask(&old).is_err(), "it was closed");
        let new = connect();
        assert_eq!(ask(&new).expect("an answer"), 2);

        forwarder.refuse();
        assert!(ask(&new).is_err() && ask(&connect()).is_err(), "both are closed");
    }
}
