//! The sources of a monitor: their sessions and their reports. Reads no clock and no socket, so that
//! tests run it in virtual time.

use std::collections::HashSet;
use std::num::NonZeroU64;

use freshline_core::dscp::Dscp;
use freshline_core::session::{self, Access, Clocked, SourceKey, Verdict};
use freshline_core::unit::Time;
use freshline_core::wire::Ack;

use super::status::Details;
use super::{Record, Sender, SourceStatus, Watch};
use crate::carrier::Answer;
use crate::credentials::{Credentials, Rules};
use crate::refusal::{Refusal, Refusals};

/// The connections by which a session comes.
fn connections_of(record: &Record) -> impl Iterator<Item = NonZeroU64> {
    record.bound().iter().chain([&record.peer]).filter_map(|sender| sender.connection)
}

/// Sessions, and the details of some of them.
pub(super) struct Sources {
    pub(super) sessions: session::Monitor<Sender>,
    /// Who may open them.
    pub(super) rules: Rules,
    pub(super) details: Details,
    pub(super) refusals: Refusals,
}

impl Sources {
    /// A datagram has come, with a code point if the kernel told it, from a sender whose certificate
    /// has `names`; writes the answer to `reply`.
    pub(super) fn on_datagram(
        &mut self,
        at: Clocked,
        (sender, names): (Sender, &[Box<str>]),
        (dscp, datagram): (Option<Dscp>, &[u8]),
        reply: &mut [u8; Ack::LEN],
        watch: &mut dyn Watch,
    ) -> Answer {
        let Self { sessions, rules, details, refusals } = self;
        let capped = sessions.counters().capped;
        let check = rules.of(names);
        let access = check.as_ref().map(|check| check as &dyn Access);
        let receipt = sessions.on_checked_datagram(at, (sender, access), dscp, datagram, reply);
        let now = at.received_at;
        if let Some((source, record)) = receipt.displaced.as_deref() {
            refusals.count(Refusal::Displaced);
            details.expire(*source, record, now, watch.replaced(*source));
            watch.gone(now, *source);
        }
        let is_known = matches!(receipt.verdict, Verdict::Fresh { .. } | Verdict::Stale { .. });
        match receipt.verdict {
            Verdict::Fresh { source, opened, is_repeat, brings_age, .. } => {
                if let Some(record) = sessions.record(source) {
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
            }
            Verdict::Closed { source, record } => {
                details.end(source, &record, now, watch.replaced(source));
                watch.gone(now, source);
            }
            Verdict::Refused(_) if sessions.counters().capped > capped => {
                refusals.count(Refusal::PeerLimit);
            }
            Verdict::Refused(reason) => {
                Refusal::of(reason).into_iter().for_each(|reason| refusals.count(reason));
            }
            _ => {}
        }
        Answer { len: receipt.reply, dscp: receipt.dscp, is_known }
    }

    /// Time has passed. Calls before [`Sources::poll_timeout`] change nothing.
    pub(super) fn handle_timeout(&mut self, now: Time, watch: &mut dyn Watch) {
        let Self { sessions, details, .. } = self;
        sessions.handle_timeout(now, |source, record| {
            details.expire(source, record, now, watch.replaced(source));
            watch.gone(now, source);
        });
        details.handle_timeout(now);
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
        sessions.revoke(now, goes_on, |source, record| {
            connections.extend(connections_of(record));
            details.end(source, record, now, watch.replaced(source));
            watch.gone(now, source);
        })
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
