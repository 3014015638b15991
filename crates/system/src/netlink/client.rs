//! A netlink socket to the kernel.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP};
use netlink_sys::protocols::{
    NETLINK_GENERIC, NETLINK_NETFILTER, NETLINK_ROUTE, NETLINK_SOCK_DIAG,
};
use netlink_sys::{Socket, SocketAddr};
use nix::sys::socket::{MsgFlags, setsockopt, sockopt};
use nix::sys::time::TimeVal;

use super::answer::Answer;
use super::error::NetlinkError;
use super::limits::MAX_DUMPS;
use super::request::{Requests, Writer};

/// How long a client waits for the kernel where it may wait. The kernel usually answers before a
/// request has returned.
pub const TIMEOUT: Duration = Duration::from_secs(2);

/// The size of the receive buffer in bytes: the kernel fills 32 KiB of a list at once.
const BUFFER: usize = 1 << 16;

/// A part of the kernel that speaks netlink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// Interfaces, addresses, routes, queueing disciplines (rtnetlink).
    Route,
    /// Families that are known by their names.
    Generic,
    /// nf_tables, NFQUEUE.
    Netfilter,
    /// The state of sockets (`sock_diag`).
    SocketDiagnosis,
}

impl Protocol {
    fn number(self) -> isize {
        match self {
            Self::Route => NETLINK_ROUTE,
            Self::Generic => NETLINK_GENERIC,
            Self::Netfilter => NETLINK_NETFILTER,
            Self::SocketDiagnosis => NETLINK_SOCK_DIAG,
        }
    }
}

/// A socket to the kernel, in the network namespace in which the calling thread was when it opened
/// it.
///
/// After [`NetlinkError::Endless`] or [`NetlinkError::TooLong`] a list is unfinished, and the
/// kernel refuses to begin another one on the same socket: a new client is needed.
#[derive(Debug)]
pub struct Client {
    socket: Socket,
    timeout: Duration,
    /// The sequence number of the next request.
    seq: u32,
    buffer: Box<[u8]>,
}

impl Client {
    /// Opens a socket, which receives messages from the kernel only. A request waits for its answer
    /// for `timeout`; with zero it never waits, which is enough for kernels that answer at once, as
    /// Linux does.
    ///
    /// # Errors
    /// [`NetlinkError::System`]: `EPROTONOSUPPORT` where the kernel was built without the protocol.
    pub fn open(protocol: Protocol, timeout: Duration) -> Result<Self, NetlinkError> {
        let mut socket = Socket::new(protocol.number())?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        // Before Linux 4.12 errors have no explanation.
        let _ = socket.set_ext_ack(true);
        let limit = TimeVal::new(timeout.as_secs() as _, timeout.subsec_micros().into());
        setsockopt(&socket, sockopt::ReceiveTimeout, &limit).map_err(io::Error::from)?;
        Ok(Self { socket, timeout, seq: 1, buffer: vec![0; BUFFER].into_boxed_slice() })
    }

    /// Sets how many bytes the kernel keeps for this socket, whatever the system's limit is.
    ///
    /// # Errors
    /// Without `CAP_NET_ADMIN`.
    pub fn set_receive_buffer(&self, bytes: usize) -> io::Result<()> {
        Ok(setsockopt(&self.socket, sockopt::RcvBufForce, &bytes)?)
    }

    /// Makes a change, and waits until the kernel has made it.
    ///
    /// # Errors
    /// [`NetlinkError`]; nothing has changed if it is [`NetlinkError::Refused`].
    pub fn change(
        &mut self,
        kind: u16,
        flags: u16,
        body: impl FnOnce(&mut Writer<'_>),
    ) -> Result<(), NetlinkError> {
        self.change_all(&mut one(kind, flags | NLM_F_ACK, body))
    }

    /// Makes several changes, and waits until the kernel has acknowledged all that have
    /// [`ACK`](super::flags::ACK) among their flags.
    ///
    /// # Errors
    /// [`NetlinkError`]; the first one, if the kernel refuses several requests.
    pub fn change_all(&mut self, requests: &mut Requests) -> Result<(), NetlinkError> {
        let acks = requests.acks();
        self.ask(requests, acks, |_, _| ())?.result()
    }

    /// Requests one object: the first for which `read` returns a value, by its message's type and
    /// body.
    ///
    /// # Errors
    /// [`NetlinkError`].
    pub fn get<T>(
        &mut self,
        kind: u16,
        flags: u16,
        body: impl FnOnce(&mut Writer<'_>),
        mut read: impl FnMut(u16, &[u8]) -> Option<T>,
    ) -> Result<T, NetlinkError> {
        let mut found = None;
        let answer = self.ask(&mut one(kind, flags | NLM_F_ACK, body), 1, |kind, body| {
            if found.is_none() {
                found = read(kind, body);
            }
        })?;
        answer.result()?;
        found.ok_or(NetlinkError::Empty)
    }

    /// Lists objects: the results of `read`, by their message's type and body. A list that changes
    /// meanwhile is read again.
    ///
    /// # Errors
    /// [`NetlinkError`].
    pub fn dump<T>(
        &mut self,
        kind: u16,
        body: impl FnOnce(&mut Writer<'_>),
        mut read: impl FnMut(u16, &[u8]) -> Option<T>,
    ) -> Result<Vec<T>, NetlinkError> {
        let mut request = one(kind, NLM_F_DUMP, body);
        unchanged(|| {
            let mut found = Vec::new();
            let answer = self.ask(&mut request, 1, |kind, body| found.extend(read(kind, body)))?;
            let was_interrupted = answer.was_interrupted();
            answer.result()?;
            Ok((found, was_interrupted))
        })
    }

    /// Sends messages without waiting for answers, which [`Self::receive`] reads.
    ///
    /// # Errors
    /// Of the system call.
    pub fn send(&mut self, requests: &mut Requests) -> io::Result<()> {
        requests.stamp(self.seq);
        self.seq = self.seq.wrapping_add(requests.count());
        self.socket.send(requests.bytes(), 0)?;
        Ok(())
    }

    /// The next datagram, for [`replies`](super::replies). Never waits.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if no datagram is queued, `ENOBUFS` if the kernel had more
    /// than the receive buffer holds, and [`io::ErrorKind::InvalidData`] if the datagram is longer
    /// than `buffer`.
    pub fn receive<'a>(&self, buffer: &'a mut [u8]) -> io::Result<&'a [u8]> {
        Ok(receive(&self.socket, buffer, MsgFlags::MSG_DONTWAIT)?)
    }

    /// Sends requests and collects the answer.
    fn ask(
        &mut self,
        requests: &mut Requests,
        acks: u32,
        mut on_object: impl FnMut(u16, &[u8]),
    ) -> Result<Answer, NetlinkError> {
        let mut answer = Answer::new(self.seq, requests.count(), acks);
        self.send(requests)?;
        let is_patient = !self.timeout.is_zero();
        let flags = if is_patient { MsgFlags::empty() } else { MsgFlags::MSG_DONTWAIT };
        // The kernel's messages after a refusal are skipped with the next request.
        while !answer.is_over() {
            match receive(&self.socket, &mut self.buffer, flags) {
                Ok(datagram) => answer.on_datagram(datagram, &mut on_object)?,
                Err(NetlinkError::System(error)) => match error.kind() {
                    io::ErrorKind::WouldBlock => return Err(NetlinkError::NoAnswer(self.timeout)),
                    io::ErrorKind::Interrupted => {}
                    _ => return Err(error.into()),
                },
                Err(error) => return Err(error),
            }
        }
        Ok(answer)
    }
}

/// Reads a list until it has not changed meanwhile. `list` gives it, and whether it has.
fn unchanged<T>(
    mut list: impl FnMut() -> Result<(Vec<T>, bool), NetlinkError>,
) -> Result<Vec<T>, NetlinkError> {
    for _ in 0..MAX_DUMPS {
        let (found, was_interrupted) = list()?;
        if !was_interrupted {
            return Ok(found);
        }
    }
    Err(NetlinkError::Changed)
}

fn one(kind: u16, flags: u16, body: impl FnOnce(&mut Writer<'_>)) -> Requests {
    let mut request = Requests::default();
    request.push(kind, flags, body);
    request
}

fn receive<'a>(
    socket: &Socket,
    buffer: &'a mut [u8],
    flags: MsgFlags,
) -> Result<&'a [u8], NetlinkError> {
    let max = buffer.len();
    let flags = flags | MsgFlags::MSG_TRUNC;
    let len = socket.recv(&mut &mut *buffer, flags.bits())?;
    buffer.get(..len).ok_or(NetlinkError::TooLong { len, max })
}

impl AsRawFd for Client {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GET_LINK: u16 = 18;
    const NEW_LINK: u16 = 16;

    /// Asks for a link by its index.
    fn about(index: u32) -> impl FnOnce(&mut Writer<'_>) {
        move |put| _ = put.raw(&[0; 4]).raw(&index.to_ne_bytes()).raw(&[0; 8])
    }

    #[test]
    fn the_kernel_answers_one_request_after_the_other() {
        for timeout in [TIMEOUT, Duration::ZERO] {
            let mut client = Client::open(Protocol::Route, timeout).unwrap();
            let index = |kind, body: &[u8]| {
                (kind == NEW_LINK)
                    .then(|| body[4..8].first_chunk().map(|b| u32::from_ne_bytes(*b)))?
            };
            for _ in 0..3 {
                assert_eq!(client.get(GET_LINK, 0, about(1), index).unwrap(), 1);
                let refused = client.get(GET_LINK, 0, about(i32::MAX as u32), index).unwrap_err();
                assert_eq!(refused.errno(), Some(nix::errno::Errno::ENODEV as i32));
                assert!(client.dump(GET_LINK, about(0), index).unwrap().contains(&1));
                let empty = client.get(GET_LINK, 0, about(1), |_, _| None::<()>).unwrap_err();
                assert!(matches!(empty, NetlinkError::Empty), "{empty:?}");
            }
        }
    }

    #[test]
    fn the_kernel_explains_what_it_refuses() {
        let mut client = Client::open(Protocol::Route, TIMEOUT).unwrap();
        // A message that is too short for its header.
        let error = client.change(GET_LINK, 0, |put| _ = put.raw(&[0; 4])).unwrap_err();
        let NetlinkError::Refused { errno, text: Some(text) } = error else { panic!("{error:?}") };
        assert_eq!(errno, nix::errno::Errno::EINVAL as i32);
        assert!(text.contains("header"), "{text}");
    }

    #[test]
    fn a_list_that_changes_is_read_again_up_to_a_limit() {
        let mut reads = 0;
        let mut changing = |times| {
            reads = 0;
            let list = unchanged(|| {
                reads += 1;
                Ok((vec![reads], reads <= times))
            });
            (list.ok(), reads)
        };
        assert_eq!(changing(0), (Some(vec![1]), 1));
        assert_eq!(changing(2), (Some(vec![3]), 3), "nothing is left of the first reads");
        assert_eq!(changing(usize::MAX), (None, MAX_DUMPS));
        let refused = unchanged::<()>(|| Err(NetlinkError::Overrun)).unwrap_err();
        assert!(matches!(refused, NetlinkError::Overrun), "{refused:?}");
    }

    #[test]
    fn a_datagram_that_is_longer_than_the_buffer_is_an_error() {
        let mut client = Client::open(Protocol::Route, TIMEOUT).unwrap();
        client.buffer = vec![0; 64].into_boxed_slice();
        let error = client.get(GET_LINK, 0, about(1), |_, _| Some(())).unwrap_err();
        assert!(matches!(error, NetlinkError::TooLong { len: 65.., max: 64 }), "{error:?}");
    }

    #[test]
    fn a_kernel_that_does_not_answer_is_waited_for_no_longer_than_the_limit() {
        let mut client = Client::open(Protocol::Route, Duration::from_millis(20)).unwrap();
        // Not acknowledged, as an acknowledgement is expected of a request that does not ask for
        // one.
        let mut silent = one(1, 0, |_| ());
        let error = client.ask(&mut silent, 1, |_, _| ()).unwrap_err();
        assert!(matches!(error, NetlinkError::NoAnswer(_)), "{error:?}");
    }
}
