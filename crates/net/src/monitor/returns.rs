//! The states that a monitor sends to the sources that ask for them: topics of its own, in one
//! session per source.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use freshline_core::session::{
    Listener, ReturnError, ReturnParams, Secret, Source, SourceEvent, SourceKey, SourceParams,
    TopicKind, TopicParams,
};
use freshline_core::source::LawConfig;
use freshline_core::unit::Time;
use freshline_core::wire::{Opening, SessionId};

use super::{MonitorError, Record, Sender};
use crate::clock::Clock;
use crate::credentials::{Right, Rules};
use crate::endpoint;
use crate::source::feed::Feed;
use crate::source::sampler::Shared;
use crate::system::system;
use crate::waker::Waker;

/// The configuration of the states that a monitor sends.
pub struct ReturnConfig {
    /// The sessions' settings. The monitor sets the token and the maximum datagram.
    pub params: SourceParams,
    /// When to send; each session has its own instance of the law.
    pub law: LawConfig,
    /// The topics to send: at least one.
    pub topics: Vec<ReturnTopic>,
}

/// A topic that a monitor sends.
pub struct ReturnTopic {
    /// Its name, weight and limits; of kind [`TopicKind::Latest`].
    pub params: TopicParams,
    /// Its states, which all sessions share.
    pub states: Shared,
}

/// Why a monitor cannot send these states.
#[derive(Debug, thiserror::Error)]
pub enum ReturnConfigError {
    /// The system refused something.
    #[error(transparent)]
    Monitor(#[from] MonitorError),
    /// There are no topics to send.
    #[error("a monitor that sends states needs at least one topic")]
    NoTopics,
    /// Only topics of kind latest are allowed, as records and keys need a buffer per source.
    #[error("a monitor sends only topics of kind latest, not {0}")]
    Kind(String),
    /// Receivers would refuse the name.
    #[error(
        "name {0:?} of the monitor: a name has ASCII letters, digits and . _ : / @ + -, begins with a \
         letter or a digit, and has no part `..`"
    )]
    Name(String),
    /// A session cannot have this name, or these topics.
    #[error(transparent)]
    Session(#[from] ReturnError),
}

impl ReturnConfig {
    /// Checks that a return session can be opened with it.
    fn check(&self, now: Time) -> Result<(), ReturnConfigError> {
        let Self { params, law, topics } = self;
        if topics.is_empty() {
            return Err(ReturnConfigError::NoTopics);
        }
        if let Some(other) = topics.iter().find(|topic| topic.params.kind != TopicKind::Latest) {
            return Err(ReturnConfigError::Kind(other.params.name.clone()));
        }
        if !Opening::is_plain_name(&params.name) {
            return Err(ReturnConfigError::Name(params.name.clone()));
        }
        // Its token is a session's id.
        let params = SourceParams { token: vec![0; size_of::<SessionId>()], ..params.clone() };
        let trial = Source::new(params, endpoint::secret()?, law.build(), now);
        let topics = topics.iter().map(|topic| topic.params.clone()).collect();
        trial.map_err(ReturnError::from)?.with_topics(topics).map_err(ReturnError::from)?;
        Ok(())
    }
}

/// The sending side to one source.
struct Sending {
    feed: Feed,
    /// Whether a refusal was logged.
    is_refused: bool,
    /// Whether its samplers have failed for good, which was logged.
    has_failed: bool,
}

/// Draws secrets of sessions; `None` if random numbers are unavailable.
pub(super) type Secrets = Box<dyn FnMut() -> Option<Secret> + Send>;

/// The samplers of the return sessions.
pub(super) struct Returning {
    config: ReturnConfig,
    clock: Clock,
    waker: Arc<Waker>,
    /// Whether a sampler has woken the loop since it was last looked at.
    is_woken: Arc<AtomicBool>,
    /// Draws the secret of each return session.
    secrets: Secrets,
    sendings: BTreeMap<SourceKey, Sending>,
}

impl Returning {
    /// Sends nothing until a source asks for it.
    ///
    /// # Errors
    /// [`ReturnConfigError`] if these states cannot be sent.
    pub(super) fn new(
        config: ReturnConfig,
        max_datagram: usize,
        clock: Clock,
        waker: Arc<Waker>,
    ) -> Result<Self, ReturnConfigError> {
        let params = SourceParams { max_datagram, measure_age: false, ..config.params };
        let is_woken = Arc::new(AtomicBool::new(false));
        let woken = Arc::clone(&is_woken);
        let waker = Waker::new(move || {
            woken.store(true, Ordering::Release);
            waker.wake()
        });
        let config = ReturnConfig { params, ..config };
        config.check(clock.now())?;
        let secrets: Secrets = Box::new(|| endpoint::secret().ok());
        let (waker, sendings) = (Arc::new(waker), BTreeMap::new());
        Ok(Self { config, clock, waker, is_woken, secrets, sendings })
    }

    /// The same with secrets that the caller draws.
    pub(super) fn with_secrets(self, secrets: Secrets) -> Self {
        Self { secrets, ..self }
    }

    /// Starts the samplers, once for all sessions.
    ///
    /// # Errors
    /// [`MonitorError::System`] if the system has no thread for one of them.
    pub(super) fn start(&self) -> Result<(), MonitorError> {
        for topic in &self.config.topics {
            let started = topic.states.start(self.clock, &self.waker);
            started.map_err(system("start a thread for states"))?;
        }
        Ok(())
    }

    /// A source asks for states: opens the return session, if the source may receive.
    pub(super) fn open(
        &mut self,
        now: Time,
        key: SourceKey,
        rules: &Rules,
        sessions: &mut Listener<Sender>,
    ) {
        let Some(record) = sessions.monitor().record(key) else { return };
        if !may_receive(rules, record) {
            let source = &record.name;
            tracing::warn!(?source, "no states for a source whose token has no right `receive`");
            return;
        }
        let Some(secret) = (self.secrets)() else { return };
        let ReturnConfig { params, law, topics } = &self.config;
        let params = ReturnParams {
            source: params.clone(),
            secret,
            law: law.build(),
            topics: topics.iter().map(|topic| topic.params.clone()).collect(),
        };
        if let Err(error) = sessions.open_return(now, key, params) {
            tracing::warn!(%error, "no return session");
            return;
        }
        let samplers = topics.iter().map(|topic| topic.states.follower(now)).collect();
        if let Some(session) = sessions.return_source(key) {
            let sending = Sending {
                feed: Feed::new(samplers, session),
                is_refused: false,
                has_failed: false,
            };
            self.sendings.insert(key, sending);
        }
    }

    /// The source's session has ended, and with it the return session.
    pub(super) fn end(&mut self, key: SourceKey) {
        self.sendings.remove(&key);
    }

    /// Other credentials are in force: ends the return sessions of sources that may not receive any more.
    pub(super) fn revoke(&mut self, rules: &Rules, sessions: &mut Listener<Sender>) {
        self.sendings.retain(|key, _| {
            let goes_on =
                sessions.monitor().record(*key).is_some_and(|record| may_receive(rules, record));
            if !goes_on && let Some(session) = sessions.return_source_mut(*key) {
                session.close();
            }
            goes_on
        });
    }

    /// Handles an event of a return session.
    pub(super) fn on_event(
        &mut self,
        now: Time,
        key: SourceKey,
        event: SourceEvent,
        sessions: &mut Listener<Sender>,
    ) {
        let Some(sending) = self.sendings.get_mut(&key) else { return };
        let need = match event {
            SourceEvent::StateWanted(need) if !sending.has_failed => need,
            SourceEvent::Closed(reason) if !sending.is_refused => {
                sending.is_refused = true;
                let source = sessions.monitor().record(key).map(|record| &record.name);
                tracing::warn!(?source, %reason, "a source has refused the return session");
                return;
            }
            _ => return,
        };
        let Some(session) = sessions.return_source_mut(key) else { return };
        match sending.feed.answer(now, need, session) {
            Ok(troubles) => {
                for trouble in troubles {
                    tracing::warn!(?trouble, "trouble with a state of the return direction");
                }
            }
            Err(error) => {
                sending.has_failed = true;
                tracing::warn!(error, "no more states of the return direction");
                session.finish();
            }
        }
    }

    /// Asks the sessions' samplers again, if one may have woken the loop.
    pub(super) fn on_turn(&mut self, now: Time, sessions: &mut Listener<Sender>) {
        if !self.is_woken.swap(false, Ordering::AcqRel) {
            return;
        }
        for (key, Sending { feed, .. }) in &mut self.sendings {
            // Accessing a session also polls its timers and events.
            if feed.awaits_waker()
                && let Some(session) = sessions.return_source_mut(*key)
                && feed.on_woken(now, session)
            {
                session.handle_timeout(now);
            }
        }
    }
}

/// Whether a source may receive states.
fn may_receive(rules: &Rules, record: &Record) -> bool {
    rules.grant(Right::Receive, record.credential(), &record.name)
}
