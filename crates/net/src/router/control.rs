//! The socket over which a running router is asked and set.
//!
//! It is a UNIX socket with an abstract name, `freshline-router-DEVICE`. Such names belong to the
//! network namespace, as the device does: there is one router a device, nothing is left behind when
//! it ends, and containers do not meet. Only root and the router's own user are heard.
//!
//! A question is a line of JSON, an [`Order`]; the answer another one.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::thread;
use std::time::Duration;

use freshline_core::router::RouterReport;
use nix::sys::socket::{Shutdown, getsockopt, shutdown, sockopt};
use nix::unistd::Uid;
use serde::{Deserialize, Serialize};

use super::order::{Order, Orders};
use super::{RouterError, canonical};

/// How long the other end may keep us waiting.
const PATIENCE: Duration = Duration::from_secs(2);
/// The longest order.
const LONGEST_ORDER: u64 = 4096;
/// The rest after a failure.
const REST: Duration = Duration::from_millis(10);

/// The name of one device's router, taken.
#[derive(Debug)]
pub(super) struct ControlSocket(UnixListener);

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
        match address(device).and_then(|address| UnixListener::bind_addr(&address)) {
            Ok(listener) => Ok(Self(listener)),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                Err(RouterError::DeviceTaken(device.to_owned()))
            }
            Err(source) => Err(RouterError::System { action: "listen for orders", source }),
        }
    }

    /// Passes on what is asked, as long as what this gives is there.
    pub(super) fn serve(self, orders: Orders) -> io::Result<Serving> {
        let serving = Serving(self.0.try_clone()?);
        thread::spawn(move || {
            for stream in self.0.incoming() {
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
pub(super) struct Serving(UnixListener);

impl Drop for Serving {
    fn drop(&mut self) {
        // Whoever waits for connections gets `InvalidInput`.
        let _ = shutdown(self.0.as_raw_fd(), Shutdown::Both);
    }
}

/// Has the router for a device carry out an order.
///
/// # Errors
/// [`ControlError`] if there is no such router, or it refuses.
pub fn order(device: &str, order: Order) -> Result<RouterReport, ControlError> {
    let device = canonical(device).unwrap_or_else(|| device.to_owned());
    let stream = address(&device).and_then(|address| UnixStream::connect_addr(&address));
    let stream = match stream {
        Ok(stream) => stream,
        Err(source) => return Err(ControlError::Unreachable { device, source }),
    };
    match ask(stream, order) {
        Ok(Reply::Report(report)) => Ok(*report),
        Ok(Reply::Refused(reason)) => Err(ControlError::Refused(reason)),
        Err(source) => Err(ControlError::NoAnswer { device, source }),
    }
}

fn ask(mut stream: UnixStream, order: Order) -> io::Result<Reply> {
    stream.set_read_timeout(Some(PATIENCE))?;
    serde_json::to_writer(&stream, &order)?;
    stream.write_all(b"\n")?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}

fn reply(mut stream: UnixStream, orders: &Orders) -> io::Result<()> {
    let asker = Uid::from_raw(getsockopt(&stream, sockopt::PeerCredentials)?.uid());
    if !asker.is_root() && asker != Uid::effective() {
        return Ok(());
    }
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new((&stream).take(LONGEST_ORDER)).read_line(&mut line)?;
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

fn address(device: &str) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("freshline-router-{device}"))
}
