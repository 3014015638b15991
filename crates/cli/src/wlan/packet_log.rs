//! The log of received packets, `wlan receive --packet-log`, joined with the frames of a capture.
//!
//! ```text
//! socket:  seq, kernel's stamp ─► rows, in this order ─┐
//! capture: seq, frame ─► frames, by seq ───────────────┴─► lines
//! ```
//!
//! A packet belongs to the frame in which the capture first showed it, the same frame as for
//! counting levels. Capture and socket are read independently: a row is held until its frame is
//! known, for at most [`PATIENCE`] and behind at most [`MOST`] rows, and is then written without.
//! Memory is bounded whichever of the two lags, because frames are kept in a ring by sequence
//! number.

use std::collections::VecDeque;
use std::path::Path;

use freshline_core::unit::{Span, Time};
use freshline_net::downlink::Received;

use super::packets::Writer;
use crate::failure::Failure;

/// The maximum number of rows that are held. The session uses packets of the capture only within
/// 4096 of the newest packet.
const MOST: usize = 8192;
/// The number of sequence numbers for which frames are remembered: those of the held rows, with
/// losses between them, and of packets that the capture shows before the socket.
const REMEMBERED: usize = 4 * MOST;
/// How long a row waits for its frame.
const PATIENCE: Span = Span::from_secs(1);
/// Bytes of lines that are handed to the writer at once.
const PIECE: usize = 8192;

const COLUMNS: &[u8] = b"seq,sent_ns,kernel_ns,received_ns,bytes,delay_ns\n";
const COLUMNS_WITH_FRAME: &[u8] = b"seq,sent_ns,kernel_ns,received_ns,bytes,delay_ns,frame\n";

/// Writes a line for each packet.
pub(super) struct PacketLog {
    writer: Writer,
    join: Option<Join>,
    /// Lines that are not yet handed to the writer.
    lines: Vec<u8>,
}

/// The counts of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Joined {
    /// All packets.
    pub(super) packets: u64,
    /// Packets whose frame the capture did not show in time.
    pub(super) frameless: u64,
}

/// Rows that wait for frames, and frames that wait for rows.
#[derive(Debug)]
struct Join {
    rows: VecDeque<Row>,
    /// Indexed by the lowest bits of the sequence number.
    frames: Vec<Option<Shown>>,
    count: Joined,
}

/// The first frame in which the capture showed a packet.
#[derive(Debug, Clone, Copy)]
struct Shown {
    seq: u64,
    frame: Time,
    at: Time,
}

#[derive(Debug)]
struct Row {
    seq: u64,
    since: Time,
    /// The line up to the frame.
    text: String,
}

impl PacketLog {
    /// A log in this file, which is overwritten; with a column for frames if there is a capture.
    pub(super) fn to(path: &Path, has_capture: bool) -> Result<Self, Failure> {
        let mut writer = Writer::to(path)?;
        writer.put(if has_capture { COLUMNS_WITH_FRAME } else { COLUMNS });
        Ok(Self { writer, join: has_capture.then(Join::new), lines: Vec::new() })
    }

    /// A packet has arrived at the socket.
    pub(super) fn packet(&mut self, now: Time, packet: &Received<'_>) {
        let text = row(packet);
        match &mut self.join {
            Some(join) => join.packet(now, packet.seq, text),
            None => {
                self.lines.extend_from_slice(text.as_bytes());
                self.lines.push(b'\n');
            }
        }
        if self.lines.len() >= PIECE {
            self.hand_over();
        }
    }

    /// The capture has shown a packet in this frame.
    pub(super) fn captured(&mut self, at: Time, seq: u64, frame: Time) {
        if let Some(join) = &mut self.join {
            join.captured(Shown { seq, frame, at });
        }
    }

    /// Writes all rows that are complete by now.
    pub(super) fn turn(&mut self, now: Time) {
        if let Some(join) = &mut self.join {
            while let Some(line) = join.next_line(|row| now.since(row.since) >= PATIENCE) {
                self.lines.extend_from_slice(line.as_bytes());
                if self.lines.len() >= PIECE {
                    self.writer.put(&std::mem::take(&mut self.lines));
                }
            }
        }
        self.hand_over();
    }

    fn hand_over(&mut self) {
        if !self.lines.is_empty() {
            self.writer.put(&std::mem::take(&mut self.lines));
        }
    }

    /// Writes all rows that are held. Returns the writer to wait for, and the counts if there is a
    /// capture.
    pub(super) fn end(mut self) -> (Writer, Option<Joined>) {
        if let Some(join) = &mut self.join {
            while let Some(line) = join.next_line(|_| true) {
                self.lines.extend_from_slice(line.as_bytes());
            }
        }
        self.hand_over();
        (self.writer, self.join.map(|join| join.count))
    }
}

impl Join {
    fn new() -> Self {
        let rows = VecDeque::with_capacity(MOST + 1);
        Self { rows, frames: vec![None; REMEMBERED], count: Joined::default() }
    }

    fn packet(&mut self, since: Time, seq: u64, text: String) {
        self.rows.push_back(Row { seq, since, text });
    }

    fn captured(&mut self, shown: Shown) {
        let slot = &mut self.frames[place(shown.seq)];
        // A restarted server numbers packets from the beginning.
        if slot.is_none_or(|old| old.seq != shown.seq || shown.at.since(old.at) > PATIENCE) {
            *slot = Some(shown);
        }
    }

    /// The oldest row as a line, if its frame is known, `is_late` is true for it, or too many are
    /// held.
    fn next_line(&mut self, is_late: impl Fn(&Row) -> bool) -> Option<String> {
        let row = self.rows.front()?;
        let is_its = |shown: &Shown| shown.seq == row.seq && row.since.since(shown.at) <= PATIENCE;
        let frame = self.frames[place(row.seq)].filter(is_its);
        if frame.is_none() && !is_late(row) && self.rows.len() <= MOST {
            return None;
        }
        let Row { text, .. } = self.rows.pop_front()?;
        self.count.packets += 1;
        self.count.frameless += u64::from(frame.is_none());
        let frame = frame.map(|shown| shown.frame.as_nanos().to_string());
        Some(format!("{text},{}\n", frame.unwrap_or_default()))
    }
}

fn place(seq: u64) -> usize {
    // REMEMBERED fits.
    (seq % REMEMBERED as u64) as usize
}

/// A line without its newline; unknown fields are empty.
fn row(packet: &Received<'_>) -> String {
    let kernel = packet.kernel.map(|kernel| kernel.unix.as_nanos().to_string());
    let delay = packet.delay.map(|delay| delay.as_nanos().to_string());
    format!(
        "{},{},{},{},{},{}",
        packet.seq,
        packet.sent_at.as_nanos(),
        kernel.unwrap_or_default(),
        packet.received_at.as_nanos(),
        packet.datagram,
        delay.unwrap_or_default(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    fn shown(seq: u64, at: u64) -> Shown {
        Shown { seq, frame: ms(at), at: ms(at) }
    }

    fn lines(join: &mut Join, now: Time) -> Vec<String> {
        std::iter::from_fn(|| join.next_line(|row| now.since(row.since) >= PATIENCE)).collect()
    }

    #[test]
    fn packets_are_written_in_their_order_with_their_frame_whichever_comes_first() {
        let mut join = Join::new();
        join.captured(shown(7, 1));
        for seq in [7, 9, 8] {
            join.packet(ms(0), seq, seq.to_string());
        }
        assert_eq!(lines(&mut join, ms(1)), ["7,1000000\n"]);
        // A row behind one whose frame is not known yet.
        join.captured(shown(8, 2));
        assert_eq!(lines(&mut join, ms(2)), [""; 0]);
        join.captured(shown(9, 2));
        // Sent again on the air: the first frame counts.
        join.captured(shown(9, 3));
        assert_eq!(lines(&mut join, ms(3)), ["9,2000000\n", "8,2000000\n"]);
        assert_eq!(join.count, Joined { packets: 3, frameless: 0 });
    }

    #[test]
    fn what_the_capture_never_shows_is_written_without_a_frame() {
        let mut join = Join::new();
        join.packet(ms(0), 1, "1".into());
        join.packet(ms(500), 2, "2".into());
        assert_eq!(lines(&mut join, ms(999)), [""; 0]);
        assert_eq!(lines(&mut join, ms(1000)), ["1,\n"]);
        assert_eq!(lines(&mut join, ms(1500)), ["2,\n"]);
        assert_eq!(join.count, Joined { packets: 2, frameless: 2 });
    }

    #[test]
    fn a_number_that_comes_again_after_a_restart_gets_its_own_frame() {
        let mut join = Join::new();
        join.captured(shown(3, 0));
        join.packet(ms(5000), 3, "3".into());
        assert_eq!(lines(&mut join, ms(5000)), [""; 0]);
        join.captured(shown(3, 5001));
        assert_eq!(lines(&mut join, ms(5001)), ["3,5001000000\n"]);
    }

    #[test]
    fn memory_is_bounded_whichever_lags_and_whatever_the_numbers() {
        let mut join = Join::new();
        for n in 0..100_000_u64 {
            // Numbers from the whole range share slots, but none gets another one's frame.
            join.captured(shown(n.wrapping_mul(0x9E37_79B9_7F4A_7C15), 0));
        }
        assert_eq!(join.frames.len(), REMEMBERED);
        let mut written = Vec::new();
        for n in 0..20_000_u64 {
            let seq = u64::MAX - n;
            join.packet(ms(0), seq, seq.to_string());
            written.extend(lines(&mut join, ms(0)));
            assert!(join.rows.len() <= MOST);
        }
        assert!(written.iter().all(|line| line.ends_with(",\n")), "of other packets");
        assert_eq!(written.len(), 20_000 - MOST);
    }
}
