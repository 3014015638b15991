//! A client that joins, and the displacement of another one if the server is full.

use core::hash::Hash;

use super::{Server, ServerEvent};
use crate::session::downlink::record::{ClientKey, ClientRecord};
use crate::session::downlink::types::ServerIgnored;
use crate::session::shares::Origin;
use crate::session::{Access, Admission, End};
use crate::unit::Time;
use crate::wire::{CloseReason, Join};
use crate::wlan::{DownlinkLaw, StationId};

impl<P: Copy + Eq + Hash> Server<P> {
    pub(super) fn on_join(
        &mut self,
        now: Time,
        (peer, access): (P, Option<&dyn Access>),
        join: &Join<'_>,
    ) -> Result<(), ServerIgnored> {
        let session = join.session;
        let is_there = match self.params.admission {
            Admission::Proven => true,
            Admission::Cookie => self.secret.accepts(join.opening.cookie, now, session, &peer),
        };
        if !is_there {
            return self.challenge(now, peer, session);
        }
        let shown = match access {
            Some(access) => access.check(&join.opening),
            None => self.accepted(join.opening.token),
        };
        let credential = match shown {
            Ok(credential) => credential,
            Err(reason) => return self.refuse(peer, session, reason),
        };
        let (key, is_new) = match self.find(session) {
            // Knowing a session's id, for example from a log, does not prove ownership.
            Some(key) if self.records[key as usize].credential != credential => {
                return self.refuse(peer, session, CloseReason::BadToken);
            }
            Some(key) => {
                let record = &mut self.records[key as usize];
                self.counters.moved += u64::from(record.peer != peer);
                (record.peer, record.heard_at) = (peer, now);
                (key, false)
            }
            None => {
                let mut origin = (self.origin)(&peer);
                if access.is_some() || !self.tokens.is_empty() {
                    origin.owner ^= credential;
                }
                let mut key = self.place(now);
                if key.is_none()
                    && let Some(out) = self.gives_way(&origin)
                {
                    self.end(now, out, End::Displaced);
                    self.counters.displaced += 1;
                    key = self.place(now);
                }
                let Some(key) = key else {
                    return self.refuse(peer, session, CloseReason::Full);
                };
                self.counters.joined += 1;
                let number = self.counters.joined;
                self.insert(ClientRecord::new(number, join, credential, peer, now));
                self.shares.insert(key, &origin);
                (key, true)
            }
        };
        self.report(ServerEvent::Joined { client: ClientKey(key), is_new });
        Ok(())
    }

    /// A place for one more client, if there is one here and in the law.
    fn place(&mut self, now: Time) -> Option<u32> {
        if self.records.len() >= self.params.max_clients {
            return None;
        }
        let key = self.records.vacant_key() as u32;
        self.law.on_join(now, StationId(key)).is_ok().then_some(key)
    }

    fn gives_way(&mut self, newcomer: &Origin) -> Option<u32> {
        let Self { records, shares, .. } = self;
        shares.gives_way(newcomer, |key| records[key as usize].heard_at)
    }
}
