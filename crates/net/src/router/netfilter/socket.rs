//! A netlink socket to the kernel's packet filter.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send,
    setsockopt, socket, sockopt,
};

use super::message::{Incoming, Messages, incoming};

/// A connection to the packet filter of the namespace in which the calling thread is now.
#[derive(Debug)]
pub(super) struct Socket {
    fd: OwnedFd,
}

impl Socket {
    pub(super) fn open() -> io::Result<Self> {
        let fd = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            SockProtocol::NetlinkNetFilter,
        )?;
        bind(fd.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
        Ok(Self { fd })
    }

    /// Lets `bytes` wait for us, whatever the system's limit is.
    pub(super) fn set_receive_buffer(&self, bytes: usize) -> io::Result<()> {
        Ok(setsockopt(&self.fd, sockopt::RcvBufForce, &bytes)?)
    }

    /// Sends messages; what the kernel has against them comes as an answer.
    pub(super) fn send(&self, messages: &Messages) -> io::Result<()> {
        send(self.fd.as_raw_fd(), messages.bytes(), MsgFlags::empty())?;
        Ok(())
    }

    /// What came next; [`io::ErrorKind::WouldBlock`] where nothing did.
    pub(super) fn receive<'a>(&self, buffer: &'a mut [u8]) -> io::Result<&'a [u8]> {
        let len = recv(self.fd.as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT)?;
        Ok(&buffer[..len])
    }

    /// Sends messages whose last one asks for an answer. The first error that the kernel gives is
    /// that of all of them.
    pub(super) fn request(&self, messages: &Messages) -> io::Result<()> {
        self.send(messages)?;
        let mut buffer = [0; 8192];
        // The kernel has answered everything when `send` returns.
        let mut errors = Vec::new();
        loop {
            match self.receive(&mut buffer) {
                Ok(datagram) => {
                    errors.extend(incoming(datagram).filter_map(|message| match message {
                        Incoming::Answer(errno) if errno != 0 => Some(errno),
                        _ => None,
                    }))
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        match errors.first() {
            Some(errno) => Err(io::Error::from_raw_os_error(*errno)),
            None => Ok(()),
        }
    }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}
