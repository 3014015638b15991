//! What must hold in every world: one checker a property.

use freshline_core::session::{Record, Source};
use freshline_core::unit::{Span, Time};
use freshline_core::wire::SessionId;

use crate::world::{Address, payload};

/// With a ceiling of 200 updates a second, each copied, answered and mixed with foreign ones.
const MOST_EVENTS_A_SECOND: u64 = 4_000;

pub(crate) struct Checks {
    /// Whether what the endpoints get is what was sent.
    intact: bool,
    session: SessionId,
    /// When each update of the session left.
    left: Vec<Time>,
    newest: Option<(SessionId, u64)>,
    second: (Time, u64),
    /// When an update of the session was last fresh at the monitor.
    pub(crate) last_fresh: Option<Time>,
    /// When the source last heard so.
    pub(crate) last_acked: Option<Time>,
}

impl Checks {
    pub(crate) fn new(intact: bool, session: SessionId) -> Self {
        Self {
            intact,
            session,
            left: Vec::new(),
            newest: None,
            second: (Time::ZERO, 0),
            last_fresh: None,
            last_acked: None,
        }
    }

    /// No stall and no spin: there is always something to wait for, and time goes on.
    pub(crate) fn event(&mut self, now: Time, next: Time) {
        assert!(next < Time::MAX, "nothing will ever happen again");
        let (began_at, count) = &mut self.second;
        if now.since(*began_at) >= Span::from_secs(1) {
            (*began_at, *count) = (now, 0);
        }
        *count += 1;
        assert!(*count < MOST_EVENTS_A_SECOND, "spinning at {now:?}");
    }

    pub(crate) fn sent(&mut self, now: Time, source: &Source) {
        self.left.push(now);
        let rate = source.law().rate().per_second();
        assert!(rate.is_finite() && rate > 0.0 && rate <= 200.0, "a rate of {rate}");
    }

    pub(crate) fn fresh(
        &mut self,
        now: Time,
        record: &Record<Address>,
        given: &[u8],
        opened: bool,
    ) {
        assert_eq!(record.payload, given, "the record holds what the verdict gave");
        if !self.intact {
            self.last_fresh = Some(now);
            return;
        }
        self.never_goes_back(record, opened);
        let sent = payload(record.session, record.newest_seq);
        assert_eq!(given, sent, "update {} is what was sent", record.newest_seq);
        if record.session == self.session {
            let left = self.left.get(record.newest_seq as usize);
            assert!(left.is_some_and(|left| *left <= now), "a state from the future");
            self.last_fresh = Some(now);
        }
    }

    fn never_goes_back(&mut self, record: &Record<Address>, opened: bool) {
        let now = (record.session, record.newest_seq);
        if let (Some((session, seq)), false) = (self.newest, opened) {
            assert!(session != now.0 || seq < now.1, "update {} after {seq}", now.1);
        }
        self.newest = Some(now);
    }

    pub(crate) fn acked(&mut self, now: Time) {
        self.last_acked = Some(now);
    }

    pub(crate) fn source_restarted(&mut self, session: SessionId) {
        self.session = session;
        self.left.clear();
    }

    /// When update `seq` of the session left.
    pub(crate) fn left(&self, seq: u64) -> Option<Time> {
        self.left.get(seq as usize).copied()
    }
}
