//! Frames from an interface in monitor mode, by a packet socket.

use std::io::{self, ErrorKind, Read};
use std::time::Duration;

use freshline_system::netlink::Route;
use nix::net::if_::if_nametoindex;
use socket2::{Domain, Protocol, SockFilter, Socket, Type};

use super::error::CaptureError;

/// All protocols (`ETH_P_ALL`).
const ALL: u16 = 0x0003;
/// The type of an interface whose frames begin with radiotap (`ARPHRD_IEEE80211_RADIOTAP`).
const RADIOTAP: u16 = 803;
/// Requested size of the kernel's receive buffer; the kernel limits it to `net.core.rmem_max`.
const KERNEL_BUFFER: usize = 8 << 20;
/// The size of the read buffer, in bytes: more than any frame with its header.
const LONGEST: usize = 1 << 16;
/// The time limit of a read. A capture that is no longer needed ends within this time.
const PATIENCE: Duration = Duration::from_millis(100);

/// A packet socket that receives the frames of one interface.
#[derive(Debug)]
pub(super) struct MonitorSocket {
    interface: String,
    socket: Socket,
    buffer: Vec<u8>,
    /// The last read returned a frame, so more frames may be available at once.
    is_busy: bool,
}

impl MonitorSocket {
    pub(super) fn open(interface: &str) -> Result<Self, CaptureError> {
        let refused = |source: io::Error| match source.kind() {
            ErrorKind::PermissionDenied => CaptureError::NeedsRoot(interface.to_owned()),
            _ => CaptureError::Interface { interface: interface.to_owned(), source },
        };
        let none = || CaptureError::NoInterface(interface.to_owned());
        let index = if_nametoindex(interface).map_err(|_| none())?;
        let kind = Route::open().and_then(|mut route| route.link_type(interface));
        if kind.map_err(|error| refused(error.into()))? != RADIOTAP {
            return Err(CaptureError::NotMonitor(interface.to_owned()));
        }
        let protocol = Protocol::from(i32::from(ALL.to_be()));
        let socket = Socket::new(Domain::PACKET, Type::RAW, Some(protocol)).map_err(refused)?;
        let _ = socket.set_recv_buffer_size(KERNEL_BUFFER);
        socket.attach_filter(&only(index)).map_err(refused)?;
        let mut opened = Self {
            interface: interface.to_owned(),
            socket,
            buffer: vec![0; LONGEST],
            is_busy: true,
        };
        opened.drain().map_err(refused)?;
        Ok(opened)
    }

    pub(super) fn interface(&self) -> &str {
        &self.interface
    }

    /// Discards frames of other interfaces that arrived before the filter was attached, and sets
    /// the time limit of reads.
    fn drain(&mut self) -> io::Result<()> {
        self.socket.set_nonblocking(true)?;
        loop {
            match (&self.socket).read(&mut self.buffer) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        self.socket.set_nonblocking(false)?;
        self.socket.set_read_timeout(Some(PATIENCE))
    }

    /// The next frame; `None` if none is available yet.
    pub(super) fn receive(&mut self) -> io::Result<Option<&[u8]>> {
        // After a frame, this read does not block: the caller gets `None` before a read that waits.
        if self.is_busy {
            self.socket.set_nonblocking(true)?;
        }
        let read = (&self.socket).read(&mut self.buffer);
        if self.is_busy {
            self.socket.set_nonblocking(false)?;
        }
        match read {
            Ok(len) => {
                self.is_busy = true;
                Ok(Some(&self.buffer[..len]))
            }
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                self.is_busy = false;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// A filter that accepts whole frames of the interface with this index, and drops all others.
fn only(index: u32) -> [SockFilter; 4] {
    const LOAD: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
    const JUMP_IF_EQUAL: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
    const RETURN: u16 = 0x06; // BPF_RET | BPF_K
    // SKF_AD_OFF + SKF_AD_IFINDEX: metadata of the frame, not a byte of it.
    const INTERFACE: u32 = (-0x1000_i32 + 8).cast_unsigned();
    [
        SockFilter::new(LOAD, 0, 0, INTERFACE),
        SockFilter::new(JUMP_IF_EQUAL, 0, 1, index),
        SockFilter::new(RETURN, 0, 0, u32::MAX),
        SockFilter::new(RETURN, 0, 0, 0),
    ]
}
