//! The socket over which a running router is asked and set.
//!
//! It is a UNIX socket in a folder that no other user may enter ([`Place`]), one per device of a network
//! namespace. Both ends check the user of the other process (`SO_PEERCRED`), which has to be root or the
//! own user. The socket of a router that was killed is replaced.
//!
//! A question is a line of JSON, an [`Order`]; the answer another one. Either line is bounded, and in what
//! is read of an answer control characters are escaped.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use freshline_core::router::RouterReport;
use freshline_core::wire::is_control;
use nix::sys::socket::{Shutdown, getsockopt, shutdown, sockopt};
use nix::unistd::Uid;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::order::{Order, Orders};
use super::place::Place;
use super::{RouterError, canonical};

/// How long the other end may keep us waiting.
const PATIENCE: Duration = Duration::from_secs(2);
/// The longest order, and the longest answer, in bytes: several times what a report with all its flows
/// takes.
const LONGEST_ORDER: u64 = 4096;
const LONGEST_ANSWER: u64 = 1 << 18;
/// The rest after a failure.
const REST: Duration = Duration::from_millis(10);

/// The name of one device's router, taken.
#[derive(Debug)]
pub(super) struct ControlSocket {
    listener: UnixListener,
    path: Path,
}

/// The socket's file, which goes with this.
#[derive(Debug)]
struct Path(PathBuf);

impl Drop for Path {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Why a running router could not be reached, or refused.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// There is none.
    #[error(
        "no `freshline router run` answers for {device} in this network namespace: {source}; is it \
         running, and the name of the device right?"
    )]
    Unreachable {
        /// The device.
        device: String,
        /// What the system said.
        source: io::Error,
    },
    /// The connection broke, or what came is no answer.
    #[error("the router for {device} gave no answer: {source}; only root and its own user get one")]
    NoAnswer {
        /// The device.
        device: String,
        /// What the system said.
        source: io::Error,
    },
    /// What listens is another user's.
    #[error("what listens for {device} is a process of user {user}, and not of root or this user")]
    Stranger {
        /// The device.
        device: String,
        /// The number of the process's user.
        user: u32,
    },
    /// The router says why not.
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

    /// Nothing if a router has it.
    fn take_at(place: &Place, device: &str) -> io::Result<Option<Self>> {
        let path = place.socket_of(device)?;
        let _alone = place.lock()?;
        if UnixStream::connect(&path).is_ok() {
            return Ok(None);
        }
        // Of routers that were killed, the device's own among them; those of namespaces that are gone
        // would stay for ever.
        for socket in place.sockets() {
            let refused = UnixStream::connect(&socket).err().map(|error| error.kind());
            if refused == Some(io::ErrorKind::ConnectionRefused) {
                let _ = fs::remove_file(socket);
            }
        }
        let listener = UnixListener::bind(&path)?;
        Ok(Some(Self { listener, path: Path(path) }))
    }

    /// Passes on what is asked, as long as what this gives is there.
    pub(super) fn serve(self, orders: Orders) -> io::Result<Serving> {
        let Self { listener, path } = self;
        let serving = Serving { _path: path, listener: listener.try_clone()? };
        thread::spawn(move || {
            for stream in listener.incoming() {
                // One after the other: a slow one costs the others its patience at most.
                if stream.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::InvalidInput) {
                    return; // the router has ended
                }
                if let Err(error) = stream.and_then(|stream| reply(stream, &orders)) {
                    tracing::debug!("somebody who asked went away: {error}");
                    // Should the process be out of files, it will not be better at once.
                    thread::sleep(REST);
                }
            }
        });
        Ok(serving)
    }
}

/// A socket that is listened at; then its name is free again.
#[derive(Debug)]
pub(super) struct Serving {
    listener: UnixListener,
    _path: Path,
}

impl Drop for Serving {
    fn drop(&mut self) {
        // The thread that accepts connections gets `InvalidInput`.
        let _ = shutdown(self.listener.as_raw_fd(), Shutdown::Both);
    }
}

/// Has the router for a device carry out an order.
///
/// # Errors
/// [`ControlError`] if there is no such router, or it refuses.
pub fn order(device: &str, order: Order) -> Result<RouterReport, ControlError> {
    let device = canonical(device).unwrap_or_else(|| device.to_owned());
    let connected = || {
        let mut result = Err(io::ErrorKind::NotFound.into());
        for place in Place::all() {
            result = place.socket_of(&device).and_then(UnixStream::connect);
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
        Ok(Reply::Report(report)) => Ok(*report),
        Ok(Reply::Refused(reason)) => Err(ControlError::Refused(reason)),
        Err(source) => Err(ControlError::NoAnswer { device, source }),
    }
}

/// Whose process the other end is.
fn peer(stream: &impl AsFd) -> io::Result<Uid> {
    Ok(Uid::from_raw(getsockopt(stream, sockopt::PeerCredentials)?.uid()))
}

fn is_trusted(user: Uid) -> bool {
    user.is_root() || user == Uid::effective()
}

fn ask(mut stream: UnixStream, order: Order) -> io::Result<Reply> {
    stream.set_read_timeout(Some(PATIENCE))?;
    serde_json::to_writer(&stream, &order)?;
    stream.write_all(b"\n")?;
    let line = line(stream, LONGEST_ANSWER)?;
    let mut value: Value = serde_json::from_str(&line)?;
    escape(&mut value);
    Ok(serde_json::from_value(value)?)
}

/// A line of at most this many bytes.
fn line(from: impl Read, longest: u64) -> io::Result<String> {
    let mut line = String::new();
    BufReader::new(from.take(longest)).read_line(&mut line)?;
    if line.ends_with('\n') {
        return Ok(line);
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, "a line without an end"))
}

/// Escapes control characters, and those that change the direction of text, in all texts.
fn escape(value: &mut Value) {
    match value {
        Value::String(text) if text.contains(is_control) => {
            let escaped = text.chars().map(|character| match is_control(character) {
                true => character.escape_default().to_string(),
                false => character.to_string(),
            });
            *text = escaped.collect();
        }
        Value::Array(all) => all.iter_mut().for_each(escape),
        Value::Object(all) => all.values_mut().for_each(escape),
        _ => {}
    }
}

fn reply(mut stream: UnixStream, orders: &Orders) -> io::Result<()> {
    if !is_trusted(peer(&stream)?) {
        return Ok(());
    }
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let line = line(&stream, LONGEST_ORDER)?;
    let reply = match serde_json::from_str(&line) {
        Err(error) => Reply::Refused(format!("that is no order: {error}")),
        Ok(order) => match orders.give(order) {
            Ok(report) => Reply::Report(Box::new(report)),
            Err(error) => Reply::Refused(error.to_string()),
        },
    };
    serde_json::to_writer(&stream, &reply)?;
    stream.write_all(b"\n")
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
        // As processes leave them that are killed.
        for ControlSocket { listener, path } in [first, other] {
            drop(listener);
            std::mem::forget(path);
        }
        let next = ControlSocket::take_at(&place, "eth0").unwrap().expect("a socket");
        assert_eq!(place.sockets(), [place.socket_of("eth0").unwrap()]);
        drop(next);
        assert_eq!(place.sockets(), [] as [PathBuf; 0]);
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
