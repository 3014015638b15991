//! A client's capture: what it sees of the client's packets, and why it sees none.
//!
//! A capture runs on a thread of its own, and shows packets sooner or later than the socket does. It
//! alone says which packets are a frame's; payloads and delays are the socket's.

use std::net::SocketAddr;
use std::sync::Arc;

use freshline_core::session::downlink::{Client as Session, Stamp};
use freshline_core::unit::{Span, Time};
use mio::Waker;
use serde::Serialize;

use super::client::{ClientWatch, SharedRate};
use crate::wlan::capture::{Capture, CaptureCounts, CaptureError, CaptureSource};

/// Packets taken before the socket is looked at again.
const TAKEN_A_TURN: usize = 1024;
/// If packets have come for this long and the capture has seen none of them, something is wrong.
const UNSEEN: Span = Span::from_secs(3);

/// What came of a client's capture, the warm-up included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct CaptureReport {
    /// What was captured.
    #[serde(flatten)]
    pub counts: CaptureCounts,
    /// Packets of this client's session among those of the server.
    pub ours: u64,
    /// Those of them that were counted in no frame, as neither the capture nor anybody else knows
    /// their rate.
    pub unrated: u64,
}

/// What is wrong with a capture.
#[derive(Debug)]
pub enum CaptureTrouble {
    /// Packets come, but the capture has seen none of them for some seconds.
    Unseen(CaptureReport),
    /// It shows our packets, but nobody knows their rate.
    Unrated,
    /// It has ended, and why if it did not end well: no frames are counted any more.
    Ended(Option<CaptureError>),
}

/// A capture that feeds a session.
pub(super) struct Air {
    capture: Capture,
    report: CaptureReport,
    /// Packets by socket and by capture, when that was last looked at.
    looked: Option<(Time, [u64; 2])>,
    told_unseen: bool,
    told_unrated: bool,
    told_end: bool,
}

impl Air {
    pub(super) fn open(
        source: &CaptureSource,
        server: SocketAddr,
        waker: Arc<Waker>,
    ) -> Result<Self, CaptureError> {
        Ok(Self {
            capture: Capture::open(source, server, waker)?,
            report: CaptureReport::default(),
            looked: None,
            told_unseen: false,
            told_unrated: false,
            told_end: false,
        })
    }

    /// The server has answered from this address.
    pub(super) fn set_server(&self, server: SocketAddr) {
        self.capture.set_server(server);
    }

    /// Hands over what was captured; whether there may be more.
    pub(super) fn feed(
        &mut self,
        now: Time,
        session: &mut Session,
        rate: &SharedRate,
        watch: &mut dyn ClientWatch,
    ) -> bool {
        for _ in 0..TAKEN_A_TURN {
            let Some(captured) = self.capture.next() else { return false };
            let rate = captured.rate.filter(|rate| rate.as_bps() > 0).or_else(|| rate.get());
            let stamp = Stamp { at: captured.stamp, rate: rate.unwrap_or_default() };
            let Ok(seq) = session.captured_seq(&captured.payload) else { continue };
            self.report.ours += 1;
            watch.captured(now, seq, captured.stamp);
            if rate.is_none() {
                self.report.unrated += 1;
            } else {
                let _ = session.on_captured(now, stamp, &captured.payload);
            }
        }
        true
    }

    pub(super) fn report(&self) -> CaptureReport {
        CaptureReport { counts: self.capture.counts(), ..self.report }
    }

    /// What is wrong, each once. `packets` have come by the socket.
    pub(super) fn trouble(&mut self, now: Time, packets: u64) -> Option<CaptureTrouble> {
        if self.capture.has_ended() {
            if std::mem::replace(&mut self.told_end, true) {
                return None;
            }
            return Some(CaptureTrouble::Ended(self.capture.take_error()));
        }
        if self.report.unrated > 0 && !std::mem::replace(&mut self.told_unrated, true) {
            return Some(CaptureTrouble::Unrated);
        }
        let seen = [packets, self.report.ours];
        let (since, before) = *self.looked.get_or_insert((now, seen));
        // While no packets come, it cannot see them either.
        if seen[1] != before[1] || seen[0] == before[0] {
            self.looked = Some((now, seen));
            return None;
        }
        if now.since(since) < UNSEEN || std::mem::replace(&mut self.told_unseen, true) {
            return None;
        }
        Some(CaptureTrouble::Unseen(self.report()))
    }
}
