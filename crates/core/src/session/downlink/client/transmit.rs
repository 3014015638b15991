//! The output of a client: joins, reports, and the close.

use alloc::vec::Vec;

use super::types::{ClientMessage, ClientTransmit};
use super::window::Newest;
use super::{Client, boundary};
use crate::dscp::Dscp;
use crate::unit::Time;
use crate::wire::{self, AckMark, Close, CloseReason, Join, Marks};

/// The progress of the client's close.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Closing {
    No,
    /// The close is to be written.
    Due,
    /// It has been written.
    Over,
}

impl Client {
    /// Writes the next datagram that may be sent now to the front of `out`, which grows to its
    /// length; call until it returns `None`.
    pub fn poll_transmit(&mut self, now: Time, out: &mut Vec<u8>) -> Option<ClientTransmit> {
        match self.closing {
            Closing::Over => return None,
            Closing::Due => {
                self.closing = Closing::Over;
                let close = Close { session: self.session, reason: CloseReason::Done };
                return Some(unmarked(put(out, &close.bytes()), ClientMessage::Close));
            }
            Closing::No => {}
        }
        if self.joiner.may_leave(now) {
            return self.write_join(now, out);
        }
        let is_due = self.report_at.is_some_and(|at| at <= now);
        let is_urgent = self.urgent_at().is_some_and(|at| at <= now);
        let newest = self.window.newest().filter(|_| is_due || is_urgent)?;
        self.joiner.is_joined().then(|| self.write_report(now, newest, is_due, out))
    }

    fn write_join(&mut self, now: Time, out: &mut Vec<u8>) -> Option<ClientTransmit> {
        let join = Join { session: self.session, opening: self.opening() };
        let len = join.len();
        if out.len() < len {
            out.resize(len, 0);
        }
        let len = join.write(out)?;
        self.joiner.on_sent(now);
        self.counters.joins += 1;
        Some(unmarked(len, ClientMessage::Join))
    }

    /// Writes a report, with a level if it `is_due`: levels are of whole intervals.
    fn write_report(
        &mut self,
        now: Time,
        newest: Newest,
        is_due: bool,
        out: &mut Vec<u8>,
    ) -> ClientTransmit {
        let seen = if is_due { self.counter.report(now) } else { None };
        let dscp = AckMark::chosen(self.params.ack_mark, self.asked, self.dscp);
        let report = wire::Report {
            session: self.session,
            number: self.number,
            newest_seq: newest.seq,
            newest_sent_at: newest.sent_at,
            newest_received_at: newest.received_at,
            hold: now.since(newest.received_at),
            received: self.counters.packets as u32,
            seen,
            marks: Marks { seen: self.dscp, sent: Some(dscp) },
            delivered: Some(self.account.report(now, self.counters.missing)),
            max_packets: self.counter.max_packets(),
        };
        self.number = self.number.wrapping_add(1);
        if is_due {
            self.reported = Some(boundary(newest.sent_at, newest.interval));
            // Packets trigger reports; this timeout is for the case that none arrive.
            self.report_at = Some(now + newest.interval * 5 / 4);
        }
        self.counters.reports += 1;
        let len = put(out, &report.bytes());
        ClientTransmit { len, dscp, message: ClientMessage::Report { seen } }
    }
}

fn unmarked(len: usize, message: ClientMessage) -> ClientTransmit {
    ClientTransmit { len, dscp: Dscp::DEFAULT, message }
}

/// Writes `bytes` to the front of `out`; returns their number.
fn put(out: &mut Vec<u8>, bytes: &[u8]) -> usize {
    if out.len() < bytes.len() {
        out.resize(bytes.len(), 0);
    }
    out[..bytes.len()].copy_from_slice(bytes);
    bytes.len()
}
