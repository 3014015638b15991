//! UDP datagrams of programs in QUIC's DATAGRAM frames (RFC 9221): one message per UDP datagram, in
//! as many frames as it needs.
//!
//! ```text
//!   frame:    flow (4 bytes) │ sequence (2) │ index of the piece, index of the last (4 bits each) │ piece
//!   message:  kind, address, port, as in SOCKS5 │ the UDP payload
//! ```
//!
//! The far end joins the frames of a message that is larger than a packet. It keeps at most
//! [`PARTIALS`] incomplete messages per flow and [`PARTIAL_BYTES`] of one peer, for at most
//! [`PARTIAL_LIFE`]. Lost frames are not sent again, and a full send buffer drops its oldest
//! frames, so that fresh datagrams do not queue behind old ones.

use std::collections::VecDeque;

use bytes::{BufMut, Bytes, BytesMut};
use freshline_core::unit::{Span, Time};
use noq_proto::Connection;

/// Maximum of frames queued for the congestion windows, in bytes of payload; beyond it the oldest
/// are dropped.
pub(super) const SEND_BUFFER: usize = 128 * 1024;

/// Maximum of received frames queued for this end, in bytes of payload.
pub(super) const RECEIVE_BUFFER: usize = 256 * 1024;

/// The largest UDP payload.
pub(super) const LONGEST: usize = 65_535;

/// Datagrams of one socket that are read before others are served.
pub(super) const A_TURN: usize = 64;

/// Bytes in front of a piece.
const HEADER: usize = 7;

/// Maximum number of pieces per message.
const PIECES: usize = 16;

/// Incomplete messages of one flow that are kept; beyond them the oldest is dropped.
const PARTIALS: usize = 4;

/// Memory of all incomplete messages of one peer, in bytes; beyond it the oldest are dropped.
const PARTIAL_BYTES: usize = 1024 * 1024;

/// How long a message may be incomplete: its frames leave together, so missing ones are lost by
/// then.
const PARTIAL_LIFE: Span = Span::from_secs(3);

/// One frame.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) flow: u32,
    sequence: u16,
    index: u8,
    last: u8,
    piece: Bytes,
}

/// Reads a frame; `None` if it is malformed.
pub(super) fn parse(frame: &Bytes) -> Option<Frame> {
    let flow = u32::from_be_bytes(frame.get(..4)?.try_into().ok()?);
    let sequence = u16::from_be_bytes(frame.get(4..6)?.try_into().ok()?);
    let (index, last) = (frame.get(6)? >> 4, frame.get(6)? & 0xf);
    let piece = frame.slice(HEADER..);
    (index <= last && !piece.is_empty()).then_some(Frame { flow, sequence, index, last, piece })
}

/// The frames of a message, of at most `most` bytes each; `None` if it needs more than [`PIECES`].
fn split(flow: u32, sequence: u16, message: &[u8], most: usize) -> Option<Vec<Bytes>> {
    let room = most.checked_sub(HEADER).filter(|room| *room > 0)?;
    let count = message.len().div_ceil(room);
    if !(1..=PIECES).contains(&count) {
        return None;
    }
    // Pieces of equal length, as a short last one saves nothing.
    let pieces = message.chunks(message.len().div_ceil(count)).enumerate();
    let frame = |(index, piece): (usize, &[u8])| {
        let mut frame = BytesMut::with_capacity(HEADER + piece.len());
        frame.put_u32(flow);
        frame.put_u16(sequence);
        frame.put_u8((index << 4 | (count - 1)) as u8);
        frame.put_slice(piece);
        frame.freeze()
    };
    Some(pieces.map(frame).collect())
}

/// Numbers the messages of one flow.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    next: u16,
}

impl Numbers {
    /// Sends a message; `false` if the connection cannot take it.
    pub(super) fn send(&mut self, connection: &mut Connection, flow: u32, message: &[u8]) -> bool {
        let sequence = self.next;
        self.next = self.next.wrapping_add(1);
        let mut datagrams = connection.datagrams();
        let frames = datagrams.max_size().and_then(|most| split(flow, sequence, message, most));
        frames.is_some_and(|frames| {
            frames.into_iter().all(|frame| datagrams.send(frame, true).is_ok())
        })
    }
}

/// The incomplete messages of one peer, of all its flows; the oldest first.
#[derive(Debug, Default)]
pub(super) struct Partials {
    all: VecDeque<Partial>,
    /// Their total size, in bytes.
    bytes: usize,
}

#[derive(Debug)]
struct Partial {
    flow: u32,
    sequence: u16,
    last: u8,
    pieces: [Option<Bytes>; PIECES],
    bytes: usize,
    began_at: Time,
}

impl Partials {
    /// Adds a frame; returns the message if the frame completes it.
    pub(super) fn join(&mut self, frame: Frame, now: Time) -> Option<Bytes> {
        if frame.last == 0 {
            return Some(frame.piece);
        }
        self.expire(now);
        let is_it = |partial: &Partial| {
            (partial.flow, partial.sequence, partial.last)
                == (frame.flow, frame.sequence, frame.last)
        };
        let at = self.all.iter().position(is_it).unwrap_or_else(|| self.begin(&frame, now));
        let partial = &mut self.all[at];
        let piece = &mut partial.pieces[usize::from(frame.index)];
        if piece.is_none() {
            // A copy, as the piece is a part of a packet, which it would keep whole.
            *piece = Some(Bytes::copy_from_slice(&frame.piece));
            partial.bytes += frame.piece.len();
            self.bytes += frame.piece.len();
        }
        let pieces = &partial.pieces[..=usize::from(frame.last)];
        if pieces.iter().all(Option::is_some) {
            let message = pieces.iter().flatten().flatten().copied().collect();
            self.remove(at);
            return Some(message);
        }
        while self.bytes > PARTIAL_BYTES {
            self.remove(0);
        }
        None
    }

    /// Drops messages that have been incomplete for too long.
    pub(super) fn expire(&mut self, now: Time) {
        while self.all.front().is_some_and(|oldest| now.since(oldest.began_at) > PARTIAL_LIFE) {
            self.remove(0);
        }
    }

    /// Makes room for the message of this frame; returns its index.
    fn begin(&mut self, frame: &Frame, now: Time) -> usize {
        let of_flow = || self.all.iter().enumerate().filter(|(_, it)| it.flow == frame.flow);
        if of_flow().count() >= PARTIALS
            && let Some((oldest, _)) = of_flow().next()
        {
            self.remove(oldest);
        }
        self.bytes += size_of::<Partial>();
        self.all.push_back(Partial {
            flow: frame.flow,
            sequence: frame.sequence,
            last: frame.last,
            pieces: Default::default(),
            bytes: size_of::<Partial>(),
            began_at: now,
        });
        self.all.len() - 1
    }

    fn remove(&mut self, at: usize) {
        self.bytes -= self.all.remove(at).map_or(0, |partial| partial.bytes);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn join(partials: &mut Partials, frames: &[Bytes]) -> Option<Bytes> {
        let joined = frames.iter().filter_map(|it| partials.join(parse(it).unwrap(), Time::ZERO));
        joined.last()
    }

    #[test]
    fn incomplete_messages_are_bounded_and_do_not_mix() {
        let mut partials = Partials::default();
        let frames = |sequence: u16| split(1, sequence, &[sequence as u8; 200], 107).unwrap();
        for sequence in 0..100 {
            assert_eq!(join(&mut partials, &frames(sequence)[..1]), None);
            assert!(partials.all.len() <= PARTIALS);
        }
        // The newest can still be completed, and the oldest cannot.
        assert_eq!(join(&mut partials, &frames(99)[1..]), Some(vec![99; 200].into()));
        assert_eq!(join(&mut partials, &frames(3)[1..]), None);
    }

    #[test]
    fn incomplete_messages_of_all_flows_share_a_budget_and_expire() {
        let mut partials = Partials::default();
        let frames = |flow: u32| split(flow, 1, &[1; 20_000], 1400).unwrap();
        for flow in 0..1000 {
            let frames = frames(flow);
            assert_eq!(join(&mut partials, &frames[1..]), None);
            // A repeated frame uses no more memory.
            assert_eq!(join(&mut partials, &frames[1..2]), None);
            assert!(partials.bytes <= PARTIAL_BYTES);
        }
        // The newest ones are there.
        assert!(partials.all.len() > 40, "{}", partials.all.len());
        assert_eq!(join(&mut partials, &frames(999)[..1]), Some(vec![1; 20_000].into()));
        partials.expire(Time::ZERO + PARTIAL_LIFE);
        assert!(!partials.all.is_empty());
        partials.expire(Time::ZERO + PARTIAL_LIFE + Span::from_nanos(1));
        assert_eq!((partials.all.len(), partials.bytes), (0, 0));
    }

    #[test]
    fn messages_of_more_pieces_than_a_frame_can_number_are_refused() {
        assert_eq!(split(1, 1, &[0; 1601], 107), None);
        assert_eq!(split(1, 1, &[0; 1600], 107).map(|frames| frames.len()), Some(16));
        assert_eq!(split(1, 1, b"x", HEADER), None);
        assert_eq!(split(1, 1, b"", 100), None);
    }

    proptest! {
        #[test]
        fn messages_are_joined_as_they_were_split_in_any_order(
            message in prop::collection::vec(any::<u8>(), 1..3000),
            most in 300..1500usize,
            flow: u32,
            sequence: u16,
            turn in 0..16usize,
        ) {
            let mut frames = split(flow, sequence, &message, most).unwrap();
            prop_assert!(frames.iter().all(|frame| frame.len() <= most));
            let turn = turn % frames.len();
            frames.rotate_left(turn);
            prop_assert!(frames.iter().all(|frame| parse(frame).unwrap().flow == flow));
            prop_assert_eq!(join(&mut Partials::default(), &frames), Some(message.into()));
        }

        #[test]
        fn any_bytes_are_read_without_harm(
            frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..50),
        ) {
            let mut partials = Partials::default();
            for frame in frames {
                if let Some(frame) = parse(&frame.into()) {
                    let _ = partials.join(frame, Time::ZERO);
                }
            }
            let bytes: usize = partials.all.iter().map(|partial| partial.bytes).sum();
            prop_assert_eq!(partials.bytes, bytes);
        }
    }
}
