//! The tables of a monitor: its records, and their indices.

use core::hash::Hash;

use super::{Monitor, Relation};
use crate::session::record::{Record, SourceKey};
use crate::session::shares::Origin;
use crate::unit::Time;
use crate::wire::SessionId;

impl<P: Copy + Hash> Monitor<P> {
    pub(super) fn find(&self, session: SessionId) -> Option<u32> {
        self.by_session.find(&session, |key| &self.records[key as usize].session)
    }

    /// The source of a session, if this peer has opened it.
    pub(in crate::session) fn source_of(&self, session: SessionId, peer: &P) -> Option<SourceKey> {
        let key = self.find(session)?;
        (self.relation_to(key, peer) == Relation::Same).then_some(SourceKey(key))
    }

    pub(super) fn find_named(&self, name: &str) -> Option<u32> {
        self.by_name.find(name, |key| &*self.records[key as usize].name)
    }

    /// The origin of a sender with this credential.
    pub(super) fn origin_of(&self, peer: &P, credential: u64) -> Origin {
        (self.origin)(peer).with_credential(credential)
    }

    /// The digest of a source's name and origin, if it has a name.
    pub(super) fn name_of(&self, origin: &Origin, name: &str) -> Option<u64> {
        let network = if origin.owner == 0 { origin.network } else { 0 };
        (!name.is_empty()).then(|| self.secret.owned_name(name, origin.owner, network))
    }

    pub(super) fn insert(&mut self, record: Record<P>, now: Time) -> u32 {
        self.make_room();
        let origin = self.origin_of(&record.peer, record.credential());
        let name = self.name_of(&origin, &record.name);
        let key = self.records.insert(record) as u32;
        self.places.take(key, &origin, name, now);
        let records = &self.records;
        self.by_session.insert(key, |key| &records[key as usize].session);
        if !records[key as usize].name.is_empty() {
            self.by_name.insert(key, |key| &*records[key as usize].name);
        }
        key
    }

    /// Grows the table by a sixteenth instead of doubling it, and never beyond the maximum: unused
    /// capacity counts as memory per source too.
    fn make_room(&mut self) {
        let len = self.records.len();
        if len == self.records.capacity() {
            let wanted = (len / 16).max(2);
            self.records.reserve_exact(wanted.min(self.params.max_sources - len));
        }
    }

    pub(super) fn remove(&mut self, key: u32, now: Time) -> Record<P> {
        let mut record = self.records.remove(key as usize);
        self.deadlines.leave(now, key, &record);
        // Not the origin of the last update, which may have come from anywhere.
        let origin = self.places.origin(key);
        self.large.enter(&origin, key);
        record.release(&mut self.large);
        let name = self.name_of(&origin, &record.name);
        self.places.leave(key, &origin, name, now);
        self.by_session.remove(key, &record.session);
        self.by_name.remove(key, &*record.name);
        record
    }
}
