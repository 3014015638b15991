//! The sources of a monitor: their sessions and their reports. Reads no clock and no socket, so that
//! tests run it in virtual time.

use std::collections::{BTreeSet, HashSet};
use std::num::NonZeroU64;
use std::ops::Bound::{Excluded, Unbounded};

use freshline_core::dscp::Dscp;
use freshline_core::session::{
    self, Access, Clocked, Datagram, End, MonitorEvent, MonitorTransmit, SourceKey,
};
use freshline_core::unit::Time;
use freshline_core::wire::Ack;

use super::details::Details;
use super::{Record, Sender, SourceStatus, Watch};
use crate::carrier::Answer;
use crate::credentials::{Credentials, Rules};
use crate::refusal::{Refusal, Refusals};

/// The connections by which a session comes.
fn connections_of(record: &Record) -> impl Iterator<Item = NonZeroU64> {
    record.bound().iter().chain([&record.peer]).filter_map(|sender| sender.connection)
}

/// Topics that may have records to hand out, by turns.
#[derive(Default)]
pub(super) struct Turns {
    ready: BTreeSet<(SourceKey, u16)>,
    /// Whose turn was last.
    last: Option<(SourceKey, u16)>,
}

/// Sessions, and the details of some of them.
pub(super) struct Sources {
    pub(super) sessions: session::Monitor<Sender>,
    /// Who may open them.
    pub(super) rules: Rules,
    pub(super) details: Details,
    pub(super) refusals: Refusals,
    /// Where answers are written.
    pub(super) out: Vec<u8>,
    pub(super) turns: Turns,
}

impl Sources {
    /// A datagram has come, with a code point if the kernel told it, from a sender whose certificate
    /// has `names`; writes the answer to `reply`.
    pub(super) fn handle_datagram(
        &mut self,
        at: Clocked,
        (sender, names): (Sender, &[Box<str>]),
        (dscp, datagram): (Option<Dscp>, &[u8]),
        reply: &mut [u8; Ack::LEN_OF_PARTS],
        watch: &mut dyn Watch,
    ) -> Answer {
        let check = self.rules.of(names);
        let access = check.as_ref().map(|check| check as &dyn Access);
        let datagram = Datagram::marked(datagram, dscp);
        // What it is ignored for is counted there.
        let _ = self.sessions.handle_checked_datagram(at, sender, access, datagram);
        let is_known = self.attend(at, watch);
        let Some(transmit) = self.sessions.poll_transmit(at.now, &mut self.out) else {
            return Answer { is_known, ..Answer::default() };
        };
        let MonitorTransmit { len, dscp, .. } = transmit;
        reply[..len].copy_from_slice(&self.out[..len]);
        Answer { len, dscp, is_known }
    }

    /// Hands on what has happened; whether an update came of a session that is open.
    fn attend(&mut self, at: impl Into<Clocked>, watch: &mut dyn Watch) -> bool {
        let Self { sessions, details, refusals, turns, .. } = self;
        let now = at.into().received_at;
        let mut is_known = false;
        while let Some(event) = sessions.poll_event() {
            match event {
                MonitorEvent::Fresh { source, opened, is_repeat, brings_age } => {
                    is_known = true;
                    let Some(record) = sessions.record(source) else { continue };
                    if opened {
                        details.insert(source, record);
                        watch.opened(now, source, record);
                    }
                    details.on_fresh(source, record, now);
                    if !is_repeat {
                        watch.fresh(now, source, record);
                    } else if brings_age {
                        watch.aged(now, source, record);
                    }
                }
                MonitorEvent::Opened { source } => {
                    is_known = true;
                    let Some(record) = sessions.record(source) else { continue };
                    details.insert(source, record);
                    watch.opened(now, source, record);
                }
                MonitorEvent::Topic { source, topic } => {
                    let Some(record) = sessions.record(source) else { continue };
                    if let Some(topic) = record.topic(topic) {
                        watch.fresh_topic(now, source, record, topic);
                    }
                }
                MonitorEvent::Record { source, topic } => _ = turns.ready.insert((source, topic)),
                MonitorEvent::Removed { source, topic } => {
                    if let Some(record) = sessions.record(source) {
                        watch.removed(now, source, record, &topic);
                    }
                }
                MonitorEvent::Withheld { source } => {
                    is_known = true;
                    let Some(record) = sessions.record(source) else { continue };
                    details.on_fresh(source, record, now);
                }
                MonitorEvent::Freshness(alarm) if alarm.is_stale => watch.stale(now, &alarm),
                MonitorEvent::Freshness(alarm) => watch.recovered(now, &alarm),
                MonitorEvent::Part { .. } | MonitorEvent::Stale { .. } => is_known = true,
                MonitorEvent::Challenged => {}
                MonitorEvent::Refused { at_peer_limit: true, .. } => {
                    refusals.count(Refusal::PeerLimit);
                }
                MonitorEvent::Refused { reason, .. } => {
                    Refusal::of(reason).into_iter().for_each(|reason| refusals.count(reason));
                }
                MonitorEvent::Gone { source, record, why } => {
                    let replaced = watch.replaced(source);
                    match why {
                        End::Closed | End::Revoked => details.end(source, &record, now, replaced),
                        End::Displaced | End::Idle => {
                            details.expire(source, record, now, replaced);
                        }
                    }
                    if why == End::Displaced {
                        refusals.count(Refusal::Displaced);
                    }
                    watch.gone(now, source, why);
                }
            }
        }
        is_known
    }

    /// Hands out records as far as there is room for them, of one topic after the other.
    pub(super) fn hand_out_records(&mut self, now: Time, watch: &mut dyn Watch) {
        let Self { sessions, turns: Turns { ready, last }, .. } = self;
        while let Some((source, cursor)) = watch.poll_record_done() {
            sessions.handle_record_done(source, &cursor);
        }
        while watch.has_room_for_record() {
            let after = last.map(|last| (Excluded(last), Unbounded));
            let next = after.and_then(|after| ready.range(after).next());
            let Some(&next) = next.or_else(|| ready.first()) else { return };
            *last = Some(next);
            let (source, topic) = next;
            let taken = sessions.next_record(now, source, topic);
            match taken.as_ref().zip(sessions.record(source)) {
                Some((taken, record)) => {
                    watch.record(now, source, record, &taken.cursor.topic, taken);
                }
                None => _ = ready.remove(&next),
            }
        }
    }

    /// Time has passed. Calls before [`Sources::poll_timeout`] change nothing.
    pub(super) fn handle_timeout(&mut self, now: Time, watch: &mut dyn Watch) {
        self.sessions.handle_timeout(now);
        self.attend(now, watch);
        self.details.handle_timeout(now);
    }

    /// Puts other credentials in force, if there are some. Returns the number of sessions that they do not
    /// permit, or that came by a connection of `connections`, which is not trusted any more. These have
    /// ended, and their connections were added to `connections`. Silent sources end, too, by credentials.
    pub(super) fn replace_credentials(
        &mut self,
        now: Time,
        credentials: Option<Credentials>,
        connections: &mut HashSet<NonZeroU64>,
        watch: &mut dyn Watch,
    ) -> usize {
        let Self { sessions, rules, details, .. } = self;
        rules.credentials = credentials.or(rules.credentials.take());
        let is_permitted = |record: &Record| rules.permit(record.credential(), &record.name);
        details.revoke(now, is_permitted);
        let untrusted = connections.clone();
        let is_trusted = |record: &Record| {
            connections_of(record).all(|connection| !untrusted.contains(&connection))
        };
        let goes_on = |record: &Record| is_permitted(record) && is_trusted(record);
        let ends = sessions.records().map(|(_, record)| record).filter(|record| !goes_on(record));
        connections.extend(ends.flat_map(connections_of));
        let number = sessions.revoke(now, goes_on);
        self.attend(now, watch);
        number
    }

    /// When to call [`Sources::handle_timeout`] next.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        Time::earliest([self.sessions.poll_timeout(), self.details.poll_timeout()])
    }

    /// At most `most` sources; see [`Details::statuses`].
    pub(super) fn statuses(
        &self,
        now: Time,
        most: usize,
        replaced: impl Fn(SourceKey) -> u64,
    ) -> Vec<SourceStatus> {
        self.details.statuses(&self.sessions, now, most, replaced)
    }
}
