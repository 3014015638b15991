//! The socket through which a running router is queried and configured.
//!
//! It is a UNIX socket in a folder that no other user may enter ([`Place`]), one per device of a
//! network namespace. Both ends check the user of the other process (`SO_PEERCRED`), which must be
//! root or their own user. The socket of a killed router is replaced.
//!
//! A request is a line of JSON, an [`Order`]; the answer is another line. Both lines have a maximum
//! length, and control characters in answers are escaped.

use std::borrow::Borrow;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{self, PathBuf};
use std::thread;
use std::time::Duration;

use freshline_core::router::RouterReport;
use freshline_core::unit::{Span, Time};
use freshline_core::wire::{escaped, is_control};
use nix::sys::socket::{
    AddressFamily, Shutdown, SockFlag, SockType, UnixAddr, connect as connect_to, getsockopt,
    shutdown, socket, sockopt,
};
use nix::unistd::Uid;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::order::{Order, OrderError, Orders};
use super::place::Place;
use super::{RouterError, canonical};
use crate::clock::Clock;

/// How long a client may take to send its whole order, in any number of pieces. Freshline's own
/// clients send it at once.
const ORDER_WITHIN: Span = Span::from_secs(1);
/// How long a client may take to read its whole answer.
const ANSWER_WITHIN: Span = Span::from_secs(2);
/// How long a client waits for its whole answer: longer than the router takes while another client
/// uses up its time.
const PATIENCE: Span = Span::from_secs(5);
/// The maximum length of an order, and of an answer, in bytes: several times the size of a report
/// with all its flows.
const MAX_ORDER: u64 = 4096;
const MAX_ANSWER: u64 = 1 << 18;
/// The pause after a failure.
const REST: Duration = Duration::from_millis(10);

/// The name of a device's router, taken by this process.
#[derive(Debug)]
pub(super) struct ControlSocket {
    path: Path,
    /// Dropped after the path.
    listener: UnixListener,
}

/// The socket's file, removed when this is dropped: while the socket still listens (a path without
/// a listener is free for the next router), and under the folder's lock.
#[derive(Debug)]
struct Path {
    place: Place,
    file: PathBuf,
}

impl Drop for Path {
    fn drop(&mut self) {
        let _alone = self.place.lock();
        let _ = fs::remove_file(&self.file);
    }
}

/// Why a running router could not be reached, or refused the order.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// No router runs for the device.
    #[error(
        "no `freshline router run` answers for {device} in this network namespace: {source}; is it \
         running, and the name of the device right?"
    )]
    Unreachable {
        /// The device.
        device: String,
        /// The system's error.
        source: io::Error,
    },
    /// The connection broke, or the reply is not an answer.
    #[error("the router for {device} gave no answer: {source}; only root and its own user get one")]
    NoAnswer {
        /// The device.
        device: String,
        /// The system's error.
        source: io::Error,
    },
    /// The listener is another user's process.
    #[error("the listener for {device} is a process of user {user}, not of root or this user")]
    Stranger {
        /// The device.
        device: String,
        /// The number of the process's user.
        user: u32,
    },
    /// The router refused, for this reason.
    #[error("the router refused: {0}")]
    Refused(String),
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Reply {
    Report(Box<RouterReport>),
    Refused(String),
}

impl ControlSocket {
    /// Takes the name. Fails with [`RouterError::DeviceTaken`] if a router has it.
    pub(super) fn take(device: &str) -> Result<Self, RouterError> {
        let taken = Place::prepared().and_then(|place| Self::take_at(&place, device));
        match taken {
            Ok(Some(socket)) => Ok(socket),
            Ok(None) => Err(RouterError::DeviceTaken(device.to_owned())),
            Err(source) => Err(RouterError::System { action: "listen for orders", source }),
        }
    }

    /// `None` if a router has it.
    fn take_at(place: &Place, device: &str) -> io::Result<Option<Self>> {
        let path = place.socket_of(device)?;
        let _alone = place.lock()?;
        if is_taken(connect(&path)) {
            return Ok(None);
        }
        // Removes the sockets of killed routers, including the device's own; otherwise the sockets
        // of deleted namespaces would stay forever.
        for socket in place.sockets() {
            let refused = connect(&socket).err().map(|error| error.kind());
            if refused == Some(io::ErrorKind::ConnectionRefused) {
                let _ = fs::remove_file(socket);
            }
        }
        let listener = UnixListener::bind(&path)?;
        let path = Path { place: place.clone(), file: path };
        Ok(Some(Self { path, listener }))
    }

    /// Passes orders to the router until the returned value is dropped.
    pub(super) fn serve(self, orders: Orders) -> io::Result<Serving> {
        let Self { path, listener } = self;
        let serving = Serving { path: Some(path), listener: listener.try_clone()? };
        thread::spawn(move || {
            for stream in listener.incoming() {
                // Clients are served one after the other: a slow client delays the others by at
                // most the times above.
                if stream.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::InvalidInput) {
                    return; // the router has ended
                }
                if let Err(error) = stream.and_then(|stream| reply(stream, &orders)) {
                    tracing::debug!("a client went away: {error}");
                    // If the process is out of file descriptors, an immediate retry would fail,
                    // too.
                    thread::sleep(REST);
                }
            }
        });
        Ok(serving)
    }
}

/// A socket that is served; dropping this frees its name.
#[derive(Debug)]
pub(super) struct Serving {
    path: Option<Path>,
    listener: UnixListener,
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.path = None;
        // The thread that accepts connections gets `InvalidInput`.
        let _ = shutdown(self.listener.as_raw_fd(), Shutdown::Both);
    }
}

/// Has the router of a device carry out an order.
///
/// # Errors
/// [`ControlError`] if there is no such router, or it refuses.
pub fn order(device: &str, order: Order) -> Result<RouterReport, ControlError> {
    let device = canonical(device).unwrap_or_else(|| device.to_owned());
    let connected = || {
        let mut result = Err(io::ErrorKind::NotFound.into());
        for place in Place::all() {
            result = place.socket_of(&device).and_then(|path| connect(&path));
            if result.is_ok() {
                break;
            }
        }
        result
    };
    let stream = match connected() {
        Ok(stream) => stream,
        Err(source) => return Err(ControlError::Unreachable { device, source }),
    };
    match peer(&stream) {
        Ok(user) if !is_trusted(user) => {
            return Err(ControlError::Stranger { device, user: user.as_raw() });
        }
        Ok(_) => {}
        Err(source) => return Err(ControlError::NoAnswer { device, source }),
    }
    match ask(stream, order) {
        Ok(answer) => answer.map_err(ControlError::Refused),
        Err(source) => Err(ControlError::NoAnswer { device, source }),
    }
}

/// Connects without blocking: a stopped router accepts no connections, and when its backlog is full
/// this fails with [`io::ErrorKind::WouldBlock`].
fn connect(path: &path::Path) -> io::Result<UnixStream> {
    let kind = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let stream = socket(AddressFamily::Unix, SockType::Stream, kind, None)?;
    connect_to(stream.as_raw_fd(), &UnixAddr::new(path)?)?;
    let stream = UnixStream::from(stream);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// Whether a process listens, even with a full backlog.
fn is_taken(connected: io::Result<UnixStream>) -> bool {
    connected.map_or_else(|error| error.kind() == io::ErrorKind::WouldBlock, |_| true)
}

/// The user of the peer process.
fn peer(stream: &impl AsFd) -> io::Result<Uid> {
    Ok(Uid::from_raw(getsockopt(stream, sockopt::PeerCredentials)?.uid()))
}

fn is_trusted(user: Uid) -> bool {
    user.is_root() || user == Uid::effective()
}

fn ask(stream: UnixStream, order: Order) -> io::Result<Result<RouterReport, String>> {
    let mut stream = Within::new(stream, PATIENCE);
    let mut text = serde_json::to_vec(&order)?;
    text.push(b'\n');
    stream.write_all(&text)?;
    read_answer(stream)
}

/// Reads a line of at most `longest` bytes.
fn line(from: impl Read, longest: u64) -> io::Result<String> {
    let mut line = String::new();
    BufReader::new(from.take(longest)).read_line(&mut line)?;
    if line.ends_with('\n') {
        return Ok(line);
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, "a line without an end"))
}

/// Escapes control characters, and characters that change the direction of text, in all texts.
fn escape(value: &mut Value) {
    match value {
        Value::String(text) if text.contains(is_control) => *text = escaped(text),
        Value::Array(all) => all.iter_mut().for_each(escape),
        Value::Object(all) => all.values_mut().for_each(escape),
        _ => {}
    }
}

fn reply(stream: UnixStream, orders: &Orders) -> io::Result<()> {
    if !is_trusted(peer(&stream)?) {
        return Ok(());
    }
    let text = answer_to(Within::new(&stream, ORDER_WITHIN), |order| orders.give(order))?;
    Within::new(&stream, ANSWER_WITHIN).write_all(&text)
}

/// Reads an order, has it carried out, and returns the text of the answer.
///
/// # Errors
/// If the line is incomplete or too long.
#[doc(hidden)]
pub fn answer_to(
    from: impl Read,
    carry_out: impl FnOnce(Order) -> Result<RouterReport, OrderError>,
) -> io::Result<Vec<u8>> {
    let line = line(from, MAX_ORDER)?;
    let reply = match serde_json::from_str(&line) {
        Err(error) => Reply::Refused(format!("that is no order: {error}")),
        Ok(order) => match carry_out(order) {
            Ok(report) => Reply::Report(Box::new(report)),
            Err(error) => Reply::Refused(error.to_string()),
        },
    };
    let mut text = serde_json::to_vec(&reply)?;
    text.push(b'\n');
    Ok(text)
}

/// Reads an answer: the report, or the router's reason to refuse.
///
/// # Errors
/// If it is no answer.
#[doc(hidden)]
pub fn read_answer(from: impl Read) -> io::Result<Result<RouterReport, String>> {
    let line = line(from, MAX_ANSWER)?;
    let mut value: Value = serde_json::from_str(&line)?;
    escape(&mut value);
    Ok(match serde_json::from_value(value)? {
        Reply::Report(report) => Ok(*report),
        Reply::Refused(reason) => Err(reason),
    })
}

/// A stream with one deadline for all reads and writes together, so that a peer that sends a byte
/// now and then gets no more time than a silent one.
struct Within<S> {
    stream: S,
    clock: Clock,
    end: Time,
}

impl<S: Borrow<UnixStream>> Within<S> {
    fn new(stream: S, span: Span) -> Self {
        let clock = Clock::new();
        Self { stream, clock, end: clock.awake() + span }
    }

    /// The remaining time.
    fn left(&self) -> io::Result<Option<Duration>> {
        match self.end.since(self.clock.awake()) {
            Span::ZERO => Err(io::ErrorKind::TimedOut.into()),
            left => Ok(Some(left.into())),
        }
    }
}

/// Replaces the system's message for a socket timeout, "try again", which would mislead here.
fn timed_out(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock { io::ErrorKind::TimedOut.into() } else { error }
}

impl<S: Borrow<UnixStream>> Read for Within<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut stream = self.stream.borrow();
        stream.set_read_timeout(self.left()?)?;
        stream.read(buffer).map_err(timed_out)
    }
}

impl<S: Borrow<UnixStream>> Write for Within<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut stream = self.stream.borrow();
        stream.set_write_timeout(self.left()?)?;
        stream.write(bytes).map_err(timed_out)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_taken_once_and_that_of_a_killed_router_again() {
        let base = tempfile::tempdir().unwrap();
        let place = Place::at(base.path());
        place.prepare().unwrap();
        let first = ControlSocket::take_at(&place, "eth0").unwrap().expect("a socket");
        assert!(ControlSocket::take_at(&place, "eth0").unwrap().is_none());
        let other = ControlSocket::take_at(&place, "eth1").unwrap().expect("a socket");
        // A killed process leaves its socket like this.
        for ControlSocket { path, listener } in [first, other] {
            drop(listener);
            std::mem::forget(path);
        }
        let next = ControlSocket::take_at(&place, "eth0").unwrap().expect("a socket");
        assert_eq!(place.sockets(), [place.socket_of("eth0").unwrap()]);
        drop(next);
        assert_eq!(place.sockets(), [] as [PathBuf; 0]);
    }

    #[test]
    fn a_path_is_removed_under_the_lock_and_while_its_socket_listens() {
        let base = tempfile::tempdir().unwrap();
        let place = Place::at(base.path());
        place.prepare().unwrap();
        let poll = mio::Poll::new().unwrap();
        let waker = std::sync::Arc::new(
            crate::waker::Waker::of_poll(poll.registry(), mio::Token(0)).unwrap(),
        );
        let desk = super::super::order::Desk::new(waker);
        for serves in [false, true] {
            let socket = ControlSocket::take_at(&place, "eth0").unwrap().expect("a socket");
            let path = place.socket_of("eth0").unwrap();
            let lock = place.lock().unwrap();
            let orders = desk.orders();
            let end = thread::spawn(move || match serves {
                true => drop(socket.serve(orders).unwrap()),
                false => drop(socket),
            });
            thread::sleep(Duration::from_millis(100));
            assert!(is_taken(connect(&path)), "another router could replace the path");
            drop(lock);
            end.join().unwrap();
            assert!(!path.exists());
        }
    }

    #[test]
    fn a_router_that_takes_no_connections_has_its_name_and_holds_nothing_up() {
        let base = tempfile::tempdir().unwrap();
        let place = Place::at(base.path());
        place.prepare().unwrap();
        let path = place.socket_of("eth0").unwrap();
        let stopped =
            socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap();
        nix::sys::socket::bind(stopped.as_raw_fd(), &UnixAddr::new(&path).unwrap()).unwrap();
        nix::sys::socket::listen(&stopped, nix::sys::socket::Backlog::new(1).unwrap()).unwrap();
        let waiting: Vec<_> = (0..9).map_while(|_| connect(&path).ok()).collect();
        assert_eq!(connect(&path).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert!(ControlSocket::take_at(&place, "eth0").unwrap().is_none());
        // The search for sockets of killed routers does not wait for it either.
        assert!(ControlSocket::take_at(&place, "eth1").unwrap().is_some());
        assert!(path.exists() && !waiting.is_empty());
    }

    #[test]
    fn a_peer_that_sends_a_byte_now_and_then_does_not_extend_its_time() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let slow = thread::spawn(move || {
            for byte in b"{\"rate\":\"20mbit\"}\n" {
                thread::sleep(Duration::from_millis(20));
                // This fails when the other end has given up.
                if theirs.write_all(&[*byte]).is_err() {
                    return;
                }
            }
        });
        let read = line(Within::new(ours, Span::from_millis(100)), MAX_ORDER);
        assert_eq!(read.unwrap_err().kind(), io::ErrorKind::TimedOut);
        slow.join().unwrap();

        // A peer that does not read.
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let written = Within::new(&ours, Span::from_millis(50)).write_all(&[0; 1 << 22]);
        assert_eq!(written.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn lines_are_bounded_and_have_an_end() {
        assert_eq!(line(&b"{}\nmore"[..], 10).unwrap(), "{}\n");
        assert!(line(&b"{}"[..], 10).is_err());
        assert!(line(&[b'x'; 100][..], 10).is_err());
        assert!(line(&[0xff, b'\n'][..], 10).is_err());
    }

    #[test]
    fn texts_of_an_answer_cannot_move_a_cursor_or_turn_text_around() {
        let mut value =
            serde_json::json!({ "refused": "a\u{1b}[2J\u{9b}b\u{202e}", "more": ["\n"] });
        escape(&mut value);
        let escaped = "a\\u{1b}[2J\\u{9b}b\\u{202e}";
        assert_eq!(value, serde_json::json!({ "refused": escaped, "more": ["\\n"] }));
    }
}
