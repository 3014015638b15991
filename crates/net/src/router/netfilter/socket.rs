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

    /// Sends messages that ask for answers. The first error among these is that of all of them.
    pub(super) fn request(&self, messages: &Messages) -> io::Result<()> {
        self.send(messages)?;
        // The kernel has answered everything when `send` returns.
        let mut buffer = [0; 8192];
        let mut result = Ok(());
        loop {
            let datagram = match self.receive(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return result,
                received => received?,
            };
            for message in incoming(datagram) {
                if let (Ok(()), Incoming::Answer(errno @ 1.., _)) = (&result, message) {
                    result = Err(io::Error::from_raw_os_error(errno));
                }
            }
        }
    }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}
