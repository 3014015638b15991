//! Messages to the service manager that has started this process (`sd_notify(3)`): datagrams of
//! lines `KEY=VALUE` to the socket that `NOTIFY_SOCKET` names. Without this variable nothing is
//! sent.

use std::env;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use freshline_core::unit::Span;

/// The destination of messages, and how often the manager expects a watchdog message.
#[derive(Debug, Default)]
pub(crate) struct Notifier {
    socket: Option<UnixDatagram>,
    /// `WatchdogSec=`; `None` if the manager watches no process or another one.
    watchdog: Option<Span>,
}

impl Notifier {
    /// Reads the environment.
    pub(crate) fn from_env() -> Self {
        let text = |name| env::var(name).ok();
        let Some(address) = text("NOTIFY_SOCKET") else { return Self::default() };
        let is_ours = text("WATCHDOG_PID").is_none_or(|pid| pid == std::process::id().to_string());
        let watchdog = text("WATCHDOG_USEC").filter(|_| is_ours);
        Self::new(&address, watchdog.as_deref()).unwrap_or_else(|error| {
            tracing::warn!("cannot reach the service manager at {address:?}: {error}");
            Self::default()
        })
    }

    fn new(address: &str, watchdog: Option<&str>) -> io::Result<Self> {
        // An abstract name begins with `@` instead of a path.
        let address = match address.strip_prefix('@') {
            Some(name) => SocketAddr::from_abstract_name(name)?,
            None => SocketAddr::from_pathname(address)?,
        };
        let socket = UnixDatagram::unbound()?;
        socket.connect_addr(&address)?;
        // A manager that hangs must not block this process.
        socket.set_nonblocking(true)?;
        let micros = watchdog.and_then(|micros| micros.parse().ok()).filter(|micros| *micros > 0);
        Ok(Self { socket: Some(socket), watchdog: micros.map(Span::from_micros) })
    }

    /// How often to send a watchdog message: twice as often as the manager needs one.
    pub(crate) fn every(&self) -> Option<Span> {
        self.watchdog.map(|watchdog| watchdog / 2)
    }

    /// The process is ready.
    pub(crate) fn ready(&self) {
        self.send("READY=1");
    }

    /// Sends a watchdog message.
    pub(crate) fn alive(&self) {
        if self.watchdog.is_some() {
            self.send("WATCHDOG=1");
        }
    }

    /// The process is about to end.
    pub(crate) fn stopping(&self) {
        self.send("STOPPING=1");
    }

    fn send(&self, message: &str) {
        if let Some(socket) = &self.socket
            && let Err(error) = socket.send(message.as_bytes())
        {
            tracing::debug!("the service manager takes no message: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_by_path_and_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let name = format!("freshline-notify-{}", std::process::id());
        let abstract_name = SocketAddr::from_abstract_name(&name).unwrap();
        for (manager, address) in [
            (UnixDatagram::bind(&path).unwrap(), path.to_str().unwrap().to_owned()),
            (UnixDatagram::bind_addr(&abstract_name).unwrap(), format!("@{name}")),
        ] {
            let notifier = Notifier::new(&address, Some("10000000")).unwrap();
            assert_eq!(notifier.every(), Some(Span::from_secs(5)));
            notifier.ready();
            notifier.alive();
            notifier.stopping();
            for expected in ["READY=1", "WATCHDOG=1", "STOPPING=1"] {
                let mut buffer = [0; 64];
                let length = manager.recv(&mut buffer).unwrap();
                assert_eq!(&buffer[..length], expected.as_bytes());
            }
        }
    }

    #[test]
    fn without_a_watchdog_no_sign_is_due() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let _manager = UnixDatagram::bind(&path).unwrap();
        for watchdog in [None, Some("0"), Some("soon")] {
            assert_eq!(Notifier::new(path.to_str().unwrap(), watchdog).unwrap().every(), None);
        }
    }
}
