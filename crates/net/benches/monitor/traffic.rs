//! A source that sends as fast as it can.

use std::io::{ErrorKind, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

use freshline_core::path::PathId;
use freshline_core::session::{Reach, Secret, Source, SourceParams};
use freshline_core::source::Fixed;
use freshline_core::unit::{Span, Time, UpdateRate};
use freshline_core::wire::{Frames, OffsetEstimate, Opening, SessionId, Update};
use freshline_net::clock::Clock;
use quinn_udp::{BATCH_SIZE, RecvMeta, Transmit, UdpSockRef, UdpSocketState};

/// The payload of all updates here.
pub(crate) const PAYLOAD: [u8; 64] = [0xA5; 64];

/// An update with [`PAYLOAD`] that asks for an ack.
pub(crate) fn update(
    session: SessionId,
    seq: u64,
    sent_at: Time,
    opening: Option<Opening<'_>>,
) -> Update<'_> {
    Update {
        session,
        seq,
        sent_at,
        // Source and monitor share one clock, so the offset is 0.
        clock_offset: Some(OffsetEstimate::new(0, Span::from_millis(1))),
        wants_ack: true,
        wants_return: false,
        ack_mark: None,
        opening,
        frames: Frames::fresh(&PAYLOAD),
    }
}

/// Packets sent between two reads of acks.
const PACKETS_A_LOOK: usize = 16;

/// Sends updates of 64 bytes regardless of losses, and reads their acks.
pub(crate) struct Blaster {
    clock: Clock,
    monitor: SocketAddr,
    socket: BatchSocket,
    session: SessionId,
    next_seq: u64,
    /// Updates in one packet to the kernel, which cuts it into datagrams (GSO).
    updates_a_packet: usize,
}

impl Blaster {
    pub(crate) fn new(monitor: SocketAddr, updates_a_packet: usize) -> Self {
        let socket = BatchSocket::bind();
        let session = SessionId(0);
        Self { clock: Clock::new(), monitor, socket, session, next_seq: 0, updates_a_packet }
    }

    /// Opens the session as every source does: an update, a challenge, its cookie, an ack.
    pub(crate) fn open(&mut self) {
        let law = Box::new(Fixed::new(UpdateRate::MAX));
        let params = SourceParams::default();
        let secret = Secret::new([7; 16]);
        let mut source = Source::new(params, secret, law, self.clock.now()).unwrap();
        self.session = source.session();
        let (mut datagram, mut out) = ([0; 512], Vec::new());
        self.socket.udp.set_nonblocking(false).unwrap();
        self.socket.udp.set_read_timeout(Some(Span::from_secs(1).into())).unwrap();
        while source.reach() != Reach::Open {
            let now = self.clock.now();
            source.handle_timeout(now);
            source.put(now, now, &PAYLOAD).unwrap();
            let Some(transmit) = source.poll_transmit(now, &mut out) else { continue };
            self.socket.udp.send_to(&out[..transmit.len], self.monitor).unwrap();
            let len = self.socket.udp.recv(&mut datagram).expect("the monitor answers");
            source
                .handle_datagram(self.clock.now(), PathId::FIRST, &datagram[..len])
                .expect("with sense");
        }
        self.socket.udp.set_nonblocking(true).unwrap();
        self.next_seq = source.counters().sent;
    }

    /// Sends until `end`; returns the number of updates that the kernel accepted.
    pub(crate) fn blast(&mut self, end: Time) -> u64 {
        let mut packet = vec![0; self.updates_a_packet * (Update::HEADER_LEN + PAYLOAD.len())];
        let mut sent = 0;
        let mut acks = Batches::new();
        loop {
            for _ in 0..PACKETS_A_LOOK {
                let now = self.clock.now();
                if now >= end {
                    return sent;
                }
                let segment = self.write(now, &mut packet);
                if self.socket.send(self.monitor, &packet, segment) {
                    sent += self.updates_a_packet as u64;
                }
            }
            self.socket.receive(&mut acks);
        }
    }

    /// Fills a packet with updates; returns the length of one.
    fn write(&mut self, now: Time, packet: &mut [u8]) -> usize {
        let len = packet.len() / self.updates_a_packet;
        for datagram in packet.chunks_exact_mut(len) {
            let update = update(self.session, self.next_seq, now, None);
            assert_eq!(update.write(datagram), Some(len));
            self.next_seq += 1;
        }
        len
    }
}

/// A socket on the loopback with GSO, GRO and `recvmmsg`, and nothing else.
pub(crate) struct BatchSocket {
    pub(crate) udp: UdpSocket,
    state: UdpSocketState,
}

impl BatchSocket {
    pub(crate) fn bind() -> Self {
        let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let state = UdpSocketState::new(UdpSockRef::from(&udp)).unwrap();
        // As large as the monitor's.
        state.set_recv_buffer_size(UdpSockRef::from(&udp), 4 << 20).unwrap();
        state.set_send_buffer_size(UdpSockRef::from(&udp), 4 << 20).unwrap();
        Self { udp, state }
    }

    /// Sends `contents`; whether the kernel accepted it.
    pub(crate) fn send(&self, destination: SocketAddr, contents: &[u8], segment: usize) -> bool {
        let segment_size = (segment < contents.len()).then_some(segment);
        let transmit = Transmit { destination, ecn: None, contents, segment_size, src_ip: None };
        self.state.try_send(UdpSockRef::from(&self.udp), &transmit).is_ok()
    }

    /// Receives the queued datagrams, at most one batch; returns their number.
    pub(crate) fn receive(&self, into: &mut Batches) -> usize {
        let mut slices = into.buffers.each_mut().map(|buffer| IoSliceMut::new(buffer));
        match self.state.recv(UdpSockRef::from(&self.udp), &mut slices, &mut into.metas) {
            Ok(filled) => into.metas[..filled].iter().map(datagrams).sum(),
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Err(error) => panic!("cannot receive: {error}"),
        }
    }
}

fn datagrams(meta: &RecvMeta) -> usize {
    meta.len.div_ceil(meta.stride.max(1))
}

/// Room for a batch of packets.
pub(crate) struct Batches {
    buffers: [Vec<u8>; BATCH_SIZE],
    metas: [RecvMeta; BATCH_SIZE],
}

impl Batches {
    pub(crate) fn new() -> Self {
        Self {
            buffers: std::array::from_fn(|_| vec![0; 65_535]),
            metas: [RecvMeta::default(); BATCH_SIZE],
        }
    }
}
