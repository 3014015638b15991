//! Which source gets a place, and which record is displaced for it.
//!
//! | places held | unknown source | returning source |
//! |---|---|---|
//! | the address holds [`max_sources_per_peer`](super::MonitorParams::max_sources_per_peer) | refused | refused |
//! | fewer than `max_sources − reserved` | a free place | a free place |
//! | fewer than `max_sources` | decided by [`Shares`] | a free place |
//! | `max_sources` | decided by [`Shares`] | decided by [`Shares`] |
//!
//! A source counts as returning if it has a name that it held for at least [`HELD`], with the same
//! token or certificate; if neither is required, from the same network. A source that replaces its
//! own former session takes that session's place, if its address may hold one more or is the same
//! as before.
//!
//! A place is charged to the sender that opened the session, even if later updates come from
//! elsewhere.

use alloc::vec::Vec;

use super::types::MonitorParams;
use crate::session::cookie::Secret;
use crate::session::known::Known;
use crate::session::shares::{Origin, Shares};
use crate::unit::{Span, Time};

/// A source that held its name for this long is known when it returns. Longer than the records of a
/// flood with random names last, which are displaced or become idle.
const HELD: Span = Span::from_secs(60);

#[derive(Debug)]
pub(super) struct Places {
    max: usize,
    reserved: usize,
    per_peer: usize,
    shares: Shares,
    known: Known,
    /// Per place, when its source joined, or the time that makes it known already; in s.
    since: Vec<u32>,
}

/// The decision on a newcomer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Place {
    Free,
    /// The place of this record.
    Of(u32),
    Full,
    /// Its address holds the maximum number of places.
    Capped,
}

impl Places {
    pub(super) fn new(params: &MonitorParams, secret: &Secret) -> Self {
        Self {
            max: params.max_sources,
            reserved: params.reserved.min(params.max_sources),
            per_peer: params.max_sources_per_peer,
            shares: Shares::default(),
            known: Known::new(params.max_sources, secret.table_hasher()),
            since: Vec::new(),
        }
    }

    /// The place of a newcomer with this name, if it has one.
    pub(super) fn find(
        &mut self,
        origin: &Origin,
        name: Option<u64>,
        heard: impl Fn(u32) -> Time,
    ) -> Place {
        if self.is_capped(origin) {
            return Place::Capped;
        }
        let is_known = name.is_some_and(|name| self.known.contains(name));
        let free = if is_known { self.max } else { self.max - self.reserved };
        if self.shares.len() < free {
            return Place::Free;
        }
        self.shares.gives_way(origin, heard).map_or(Place::Full, Place::Of)
    }

    pub(super) fn take(&mut self, place: u32, origin: &Origin, name: Option<u64>, now: Time) {
        self.shares.insert(place, origin);
        let wanted = place as usize + 1;
        if wanted > self.since.len() {
            self.since.reserve_exact((wanted - self.since.len()).max(wanted / 16));
            self.since.resize(wanted, 0);
        }
        let was_known = name.is_some_and(|name| self.known.remove(name));
        self.since[place as usize] = if was_known { 0 } else { seconds(now) };
    }

    /// Whether the address holds the maximum number of places.
    pub(super) fn is_capped(&self, origin: &Origin) -> bool {
        self.shares.held(origin) >= self.per_peer
    }

    /// The origin from which the session of a place was opened.
    pub(super) fn origin(&self, place: u32) -> Origin {
        self.shares.origin(place).unwrap_or_default()
    }

    pub(super) fn leave(&mut self, place: u32, origin: &Origin, name: Option<u64>, now: Time) {
        self.shares.remove(place);
        let since = self.since[place as usize];
        // Times may go back, as with datagrams in a batch.
        let held = seconds(now).saturating_sub(since);
        if let Some(name) = name
            && (since == 0 || held >= seconds(Time::ZERO + HELD))
        {
            self.known.insert(name, origin);
        }
    }
}

fn seconds(time: Time) -> u32 {
    u32::try_from(time.as_nanos() / 1_000_000_000).unwrap_or(u32::MAX).max(1)
}
