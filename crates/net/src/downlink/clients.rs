//! The clients of a server: their sessions, their payloads and their statistics. Reads no clock and
//! no socket.

use std::collections::HashSet;
use std::num::NonZeroU64;

use freshline_core::session::downlink::{
    ClientKey, ClientRecord, PutError, ReceivedDatagram, Server as Sessions, ServerEvent,
    ServerTransmit,
};
use freshline_core::session::{Access, Datagram, End};
use freshline_core::unit::Time;
use freshline_core::wire::Challenge;

use super::payload::{Payloads, Take};
use super::report::{Details, ServerReport};
use crate::carrier::{Answer, Peer, Received};
use crate::credentials::{Credentials, Rules};
use crate::refusal::{Refusal, Refusals};

pub(super) struct Clients {
    pub(super) sessions: Sessions<Peer>,
    /// The rules that decide which clients may join.
    pub(super) rules: Rules,
    pub(super) payloads: Box<dyn Payloads>,
    pub(super) refusals: Refusals,
    /// The maximum payload size.
    pub(super) max_payload: usize,
    details: Details,
    /// The error that has ended the payloads.
    failed: Option<String>,
    payload: Vec<u8>,
    /// The buffer for answers.
    out: Vec<u8>,
    /// Clients found without a payload to send, in one pass over the clients.
    idle: Vec<ClientKey>,
}

impl Clients {
    pub(super) fn new(
        sessions: Sessions<Peer>,
        rules: Rules,
        payloads: Box<dyn Payloads>,
        max_payload: usize,
    ) -> Self {
        Self {
            sessions,
            rules,
            payloads,
            refusals: Refusals::default(),
            max_payload,
            details: Details::default(),
            failed: None,
            payload: Vec::with_capacity(max_payload),
            out: Vec::new(),
            idle: Vec::new(),
        }
    }

    /// Handles a datagram; writes the answer to `reply`.
    pub(super) fn handle_datagram(
        &mut self,
        received: Received<'_>,
        reply: &mut [u8; Challenge::LEN],
    ) -> Answer {
        let Received { at, peer, dscp, names, datagram } = received;
        let check = self.rules.of(names);
        let access = check.as_ref().map(|check| check as &dyn Access);
        let datagram = ReceivedDatagram::at(at.received_at, Datagram::marked(datagram, dscp));
        // The sessions count the reason if they ignore it.
        let _ = self.sessions.handle_checked_datagram(at.now, peer, access, datagram);
        let is_known = self.attend(at.now);
        let Some(answer) = self.sessions.poll_answer(&mut self.out) else {
            return Answer { is_known, ..Answer::default() };
        };
        let ServerTransmit { len, dscp, .. } = answer;
        reply[..len].copy_from_slice(&self.out[..len]);
        Answer { len, dscp, is_known }
    }

    /// Handles due timers.
    ///
    /// # Errors
    /// The reason why there are no more payloads.
    pub(super) fn handle_timeout(&mut self, now: Time) -> Result<(), String> {
        self.sessions.handle_timeout(now);
        self.attend(now);
        self.failed.take().map_or(Ok(()), Err)
    }

    /// Writes the next datagram to send to the front of `out`.
    pub(super) fn poll_transmit(
        &mut self,
        now: Time,
        out: &mut Vec<u8>,
    ) -> Option<ServerTransmit<Peer>> {
        self.sessions.poll_transmit(now, out)
    }

    /// When to call [`Clients::handle_timeout`] next.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.sessions.poll_timeout()
    }

    /// Resumes clients without a payload when there are new payloads.
    pub(super) fn resume_if_news(&mut self, now: Time) {
        if self.payloads.has_news() {
            let idle = self.sessions.clients().filter(|(_, record)| record.is_idle());
            self.idle.clear();
            self.idle.extend(idle.map(|(client, _)| client));
            for client in &self.idle {
                self.sessions.resume(now, *client);
            }
        }
    }

    /// Puts new credentials in force, if there are any. Returns the number of clients that they do
    /// not permit, or that use a connection of `connections`, which is no longer trusted. These
    /// clients are removed, and their connections are added to `connections`.
    pub(super) fn replace_credentials(
        &mut self,
        now: Time,
        credentials: Option<Credentials>,
        connections: &mut HashSet<NonZeroU64>,
    ) -> usize {
        let Self { sessions, rules, .. } = self;
        rules.credentials = credentials.or(rules.credentials.take());
        let untrusted = connections.clone();
        let goes_on = |record: &ClientRecord<Peer>| {
            let connection = record.peer.serial();
            rules.permit(record.credential(), &record.name)
                && connection.is_none_or(|connection| !untrusted.contains(&connection))
        };
        let ends = sessions.clients().map(|(_, record)| record).filter(|record| !goes_on(record));
        connections.extend(ends.filter_map(|record| record.peer.serial()));
        let number = sessions.revoke(now, goes_on);
        self.attend(now);
        number
    }

    /// Reports at most `most` clients; the transport's refusals are not included.
    pub(super) fn report(&self, times: [Time; 2], unsent: u64, most: usize) -> ServerReport {
        let dropped = |client| self.payloads.dropped(client);
        self.details.report(&self.sessions, times, unsent, most, dropped)
    }

    /// Serves the requests of the sessions, and records their events; returns whether a client was
    /// heard.
    fn attend(&mut self, now: Time) -> bool {
        let mut is_known = false;
        while let Some(event) = self.sessions.poll_event() {
            match event {
                ServerEvent::PacketWanted(client) => self.answer(now, client),
                ServerEvent::Joined { client, is_new } => {
                    is_known = true;
                    if is_new {
                        self.payloads.joined(client);
                    }
                }
                ServerEvent::Reported(_) => is_known = true,
                ServerEvent::Challenged => {}
                ServerEvent::Refused(reason) => {
                    let reason = Refusal::of(reason);
                    reason.into_iter().for_each(|reason| self.refusals.count(reason));
                }
                ServerEvent::Gone { client, record, why } => {
                    if why == End::Displaced {
                        self.refusals.count(Refusal::Displaced);
                    }
                    let dropped = self.payloads.dropped(client);
                    self.details.end(&record, self.sessions.dscp(), now, dropped);
                }
            }
        }
        is_known
    }

    /// Sends the due packet of a client.
    fn answer(&mut self, now: Time, client: ClientKey) {
        self.payload.clear();
        let taken = self.payloads.take(now, client, self.max_payload, &mut self.payload);
        match taken {
            Take::Packet => match self.sessions.put(now, client, &self.payload) {
                Ok(()) | Err(PutError::Gone) => {}
                Err(error) => self.failed = Some(error.to_string()),
            },
            Take::NotYet => self.sessions.pause(now, client),
            Take::End => self.sessions.finish(now, client),
            Take::Failed(why) => self.failed = Some(why),
        }
    }
}
