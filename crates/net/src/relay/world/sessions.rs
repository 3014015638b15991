//! The sessions of a relay at one of its destinations, the counterpart of
//! [`Sessions`](super::super::sessions::Sessions) without sockets.

use std::collections::BTreeMap;
use std::sync::Arc;

use freshline_core::session::{self, SourceEvent};
use freshline_core::unit::Time;

use super::super::board::Inbox;
use super::super::newest::Newest;
use super::super::parting::Parting;
use super::super::states::Relayed;
use super::Seeds;
use super::hop::{Direction, Hop};
use crate::source::feed::Feed;
use crate::waker::Waker;

struct Session {
    relayed: Arc<Relayed>,
    session: session::Source,
    feed: Feed,
    /// Its sender number.
    sender: u16,
}

pub(super) struct Sessions {
    /// The destination's number.
    number: usize,
    pub(super) inbox: Arc<Inbox>,
    /// By place in the relay's monitor.
    sessions: BTreeMap<usize, Session>,
}

impl Sessions {
    pub(super) fn new(number: usize) -> Self {
        let inbox = Arc::new(Inbox::new(Arc::new(Waker::new(|| Ok(())))));
        Self { number, inbox, sessions: BTreeMap::new() }
    }

    pub(super) fn relayed(&self) -> impl Iterator<Item = &Arc<Relayed>> {
        self.sessions.values().map(|session| &session.relayed)
    }

    /// `now` is the world's time, and `local` the relay's.
    pub(super) fn turn(&mut self, (now, local): (Time, Time), hop: &mut Hop, seeds: &mut Seeds) {
        while let Some((sender, answer)) = hop.receive(now, Direction::Back) {
            let mut sessions = self.sessions.values_mut();
            if let Some(it) = sessions.find(|it| it.sender == sender) {
                let _ = it.session.handle_datagram(local, PATH, &answer);
            }
        }
        for (place, source) in self.inbox.take() {
            self.on_change((now, local), place, source, hop, seeds);
        }
        for session in self.sessions.values_mut() {
            session.turn((now, local), hop);
        }
    }

    fn on_change(
        &mut self,
        (now, local): (Time, Time),
        place: usize,
        source: Option<Arc<Relayed>>,
        hop: &mut Hop,
        seeds: &mut Seeds,
    ) {
        if let Some(it) = self.sessions.get_mut(&place)
            && source.as_ref().is_some_and(|source| Arc::ptr_eq(source, &it.relayed))
        {
            it.feed.on_woken(local, &mut it.session);
            return;
        }
        if let Some(mut it) = self.sessions.remove(&place)
            && it.relayed.parting() == Some(Parting::Close)
        {
            it.session.close();
            it.send((now, local), hop);
        }
        if let Some(relayed) = source {
            let (session, sender) = seeds.session(local, &relayed.name, Vec::new());
            let feed = Feed::supplied_by(Box::new(Newest::new(Arc::clone(&relayed), self.number)));
            self.sessions.insert(place, Session { relayed, session, feed, sender });
        }
    }
}

impl Session {
    fn turn(&mut self, (now, local): (Time, Time), hop: &mut Hop) {
        for _ in 0..9 {
            self.session.handle_timeout(local);
            while let Some(event) = self.session.poll_event() {
                match event {
                    SourceEvent::StateWanted(need) => {
                        let troubles = self.feed.answer(local, need, &mut self.session);
                        assert!(troubles.expect("it goes on").is_empty());
                    }
                    SourceEvent::RecordsDone { topic } => {
                        self.feed.on_records_done(local, topic, &mut self.session);
                    }
                    _ => {}
                }
            }
            if !self.send((now, local), hop) {
                break;
            }
        }
    }

    /// Sends all updates that are due; returns whether any was sent.
    fn send(&mut self, (now, local): (Time, Time), hop: &mut Hop) -> bool {
        let (mut out, mut has_sent) = (Vec::new(), false);
        while let Some(transmit) = self.session.poll_transmit(local, &mut out) {
            hop.send(now, Direction::There, self.sender, &out[..transmit.len]);
            has_sent = true;
        }
        has_sent
    }
}

/// All sessions have one path.
pub(super) const PATH: freshline_core::path::PathId = freshline_core::path::PathId(0);
