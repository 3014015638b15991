//! Runs a browser's session over its link.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use freshline::driver::clock::Clock;
use freshline::{State, Subscription};
use freshline_core::pattern;
use freshline_core::session::Secret;
use freshline_core::unit::Time;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::GatewayError;
use crate::hub::Hub;
use crate::session::{Carrier, Session, Settings};
use crate::shared::Shared;

/// A message from a browser.
pub(crate) enum Incoming {
    /// A message of the Freshline protocol.
    Datagram(Bytes),
    /// A control message.
    Control(String),
}

/// A connection to a browser.
pub(crate) trait Link {
    /// The next message; `None` if the browser is gone. The call may be cancelled.
    async fn recv(&mut self) -> Option<Incoming>;

    /// Sends a message of the protocol, and says whether the browser is still there.
    async fn send(&mut self, datagram: &[u8]) -> bool;

    /// Sends a control message, and says whether the browser is still there.
    async fn reply(&mut self, text: String) -> bool;
}

/// How often the browser is told of the law.
const LINK: Duration = Duration::from_secs(1);

/// Patterns of a browser, and bytes of each.
const MAX_PATTERNS: usize = 64;
const MAX_PATTERN: usize = 256;

/// Control messages in a row, and how often there may be a further one.
pub(crate) const BURST: u32 = 32;
const PERIOD: Duration = Duration::from_millis(31);

/// The same for subscriptions, each of which copies all current states.
const SUBSCRIPTIONS: u32 = 4;
const SUBSCRIPTION_PERIOD: Duration = Duration::from_secs(1);

/// A browser from which nothing comes for so long is gone, or hangs.
const SILENCE: Duration = Duration::from_secs(60);

/// The maximum rest, which bounds the effect of a clock that stands still.
const REST: Duration = Duration::from_secs(1);

/// Serves a browser until it is gone, or the monitor has ended.
pub(crate) async fn pump(mut link: impl Link, carrier: Carrier, shared: &Arc<Shared>) {
    let clock = Clock::new();
    let mut browser = match Browser::new(clock.now(), carrier, &shared.settings) {
        Ok(browser) => browser,
        Err(error) => return tracing::error!(%error, "a browser is refused"),
    };
    let mut statuses = shared.statuses.clone();
    statuses.mark_changed();
    let mut link_report = tokio::time::interval(LINK);
    let mut talk = Bucket::new(clock.now(), BURST, PERIOD);
    let mut heard_at = clock.now();
    loop {
        if !browser.turn(&clock, &mut link).await {
            return;
        }
        let due = browser.session.poll_timeout();
        let rest = due.map_or(REST, |due| Duration::from(due.since(clock.now())).min(REST));
        if Duration::from(clock.now().since(heard_at)) > SILENCE {
            return;
        }
        tokio::select! {
            incoming = link.recv() => {
                heard_at = clock.now();
                let Some(incoming) = incoming else { return };
                let answer = match incoming {
                    Incoming::Datagram(datagram) => {
                        browser.session.handle_datagram(heard_at, &datagram);
                        continue;
                    }
                    Incoming::Control(_) if !talk.permits(heard_at) => return,
                    Incoming::Control(text) => browser.control(heard_at, &text, shared),
                };
                if answer["ok"] == true {
                    // A new browser, or another subscription.
                    statuses.mark_changed();
                }
                if !link.reply(answer.to_string()).await {
                    return;
                }
            }
            state = browser.wishes.next(), if browser.session.is_hungry() => match state {
                Some(state) => browser.put(clock.now(), &state),
                // The monitor has ended.
                None => break,
            },
            changed = statuses.changed() => {
                if changed.is_err() {
                    break;
                }
                let statuses = Arc::clone(&statuses.borrow_and_update());
                let wishes = &browser.wishes;
                browser.session.put_statuses(clock.now(), &statuses, |name| wishes.want_source(name));
            }
            _ = link_report.tick() => {
                browser.session.put_again(clock.now());
                browser.session.put_link(clock.now(), shared.settings.law.name().as_str());
            }
            () = tokio::time::sleep(rest) => {}
        }
    }
    browser.session.close();
    browser.turn(&clock, &mut link).await;
}

/// A token bucket: permits `most` in a row, and one more per period.
struct Bucket {
    budget: u32,
    most: u32,
    period: Duration,
    refilled_at: Time,
}

impl Bucket {
    fn new(now: Time, most: u32, period: Duration) -> Self {
        Self { budget: most, most, period, refilled_at: now }
    }

    fn permits(&mut self, now: Time) -> bool {
        let since = Duration::from(now.since(self.refilled_at));
        let periods = since.as_nanos() / self.period.as_nanos();
        if periods > 0 {
            let more = u32::try_from(periods).unwrap_or(self.most);
            self.budget = self.budget.saturating_add(more).min(self.most);
            self.refilled_at = now;
        }
        let permits = self.budget > 0;
        self.budget = self.budget.saturating_sub(1);
        permits
    }
}

struct Browser {
    session: Session,
    wishes: Wishes,
    subscriptions: Bucket,
    /// A datagram.
    out: Vec<u8>,
}

impl Browser {
    fn new(now: Time, carrier: Carrier, settings: &Settings) -> Result<Self, GatewayError> {
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(|error| GatewayError::Random(error.to_string()))?;
        let session = Session::new(now, Secret::new(random), settings, carrier)?;
        let subscriptions = Bucket::new(now, SUBSCRIPTIONS, SUBSCRIPTION_PERIOD);
        Ok(Self { session, wishes: Wishes::default(), subscriptions, out: Vec::new() })
    }

    /// Runs the session's due work, and returns whether the browser is still connected.
    async fn turn(&mut self, clock: &Clock, link: &mut impl Link) -> bool {
        let now = clock.now();
        self.session.handle_timeout(now);
        while self.session.poll_wants() && self.feed(now) {}
        while let Some(transmit) = self.session.poll_transmit(clock.now(), &mut self.out) {
            if !link.send(&self.out[..transmit.len]).await {
                return false;
            }
            while self.session.poll_wants() && self.feed(clock.now()) {}
        }
        true
    }

    /// Puts all pending states, and returns whether there were any.
    fn feed(&mut self, now: Time) -> bool {
        let mut has_put = false;
        while let Some(state) = self.wishes.try_next() {
            self.put(now, &state);
            has_put = true;
        }
        has_put
    }

    fn put(&mut self, now: Time, state: &State) {
        if self.wishes.want(&state.name()) {
            self.session.put(now, state);
        }
    }

    /// Executes a control message, and returns the answer.
    fn control(&mut self, now: Time, text: &str, shared: &Shared) -> Value {
        let message: Message = match serde_json::from_str(text) {
            Ok(message) => message,
            Err(error) => return json!({ "id": null, "ok": false, "error": error.to_string() }),
        };
        let done = match message {
            Message { subscribe: Some(patterns), .. } => {
                self.subscribe(now, patterns, &*shared.hub)
            }
            Message { command: Some(command), .. } => command.put(&*shared.hub),
            _ => Err("a control message has `subscribe` or `command`".into()),
        };
        match done {
            Ok(()) => json!({ "id": message.id, "ok": true, "series": self.session.series() }),
            Err(error) => json!({ "id": message.id, "ok": false, "error": error }),
        }
    }

    fn subscribe(&mut self, now: Time, patterns: Vec<String>, hub: &dyn Hub) -> Result<(), String> {
        if patterns.len() > MAX_PATTERNS || patterns.iter().any(|it| it.len() > MAX_PATTERN) {
            return Err(format!("at most {MAX_PATTERNS} patterns of {MAX_PATTERN} bytes each"));
        }
        if !self.subscriptions.permits(now) {
            return Err("too many subscriptions; wait for a second".into());
        }
        self.wishes = Wishes::new(patterns, hub);
        let wishes = &self.wishes;
        self.session.keep(now, |name| wishes.want(name));
        self.feed(now);
        Ok(())
    }
}

/// A control message.
#[derive(Debug, Deserialize)]
struct Message {
    #[serde(default)]
    id: Value,
    subscribe: Option<Vec<String>>,
    command: Option<Command>,
}

#[derive(Debug, Deserialize)]
struct Command {
    topic: String,
    text: Option<String>,
    base64: Option<String>,
}

impl Command {
    fn put(self, hub: &dyn Hub) -> Result<(), String> {
        let state = match (self.text, self.base64) {
            (Some(text), None) => text.into_bytes(),
            (None, Some(base64)) => {
                STANDARD.decode(base64).map_err(|error| format!("`base64` is invalid: {error}"))?
            }
            _ => return Err("a command has `text` or `base64`".into()),
        };
        hub.command(&self.topic, state).map_err(|error| error.to_string())
    }
}

/// The subscription of a browser.
#[derive(Default)]
struct Wishes {
    patterns: Vec<String>,
    subscription: Option<Subscription>,
}

impl Wishes {
    fn new(patterns: Vec<String>, hub: &dyn Hub) -> Self {
        let all = match &patterns[..] {
            [] => None,
            [one] => Some(one.as_str()),
            _ => Some("*"),
        };
        let subscription = all.map(|pattern| hub.observe(pattern));
        Self { patterns, subscription }
    }

    /// Whether a state of this name is wanted.
    fn want(&self, name: &str) -> bool {
        self.patterns.iter().any(|pattern| pattern::matches(pattern, name))
    }

    /// Whether topics of a source may be wanted.
    fn want_source(&self, source: &str) -> bool {
        self.patterns.iter().any(|pattern| {
            let of_source = pattern.split('/').next().unwrap_or_default();
            pattern::matches(of_source, source) || pattern::matches(pattern, source)
        })
    }

    fn try_next(&self) -> Option<State> {
        self.subscription.as_ref()?.try_next()
    }

    /// The next state; `None` if there will be none. Without a subscription it waits for ever.
    async fn next(&self) -> Option<State> {
        match &self.subscription {
            Some(subscription) => subscription.recv().await,
            None => std::future::pending().await,
        }
    }
}
