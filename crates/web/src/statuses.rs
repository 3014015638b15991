//! The sources of the monitor at one moment, for all browsers.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use freshline::SourceStatus;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::hub::Hub;
use crate::series::MAX;

/// How often the monitor is asked.
const EVERY: Duration = Duration::from_secs(2);

/// How often the gateway checks for browsers.
const LOOK: Duration = Duration::from_millis(200);

/// A JSON array for each source, by its name.
#[derive(Debug, Default)]
pub(crate) struct Statuses {
    lines: HashMap<Box<str>, Value>,
}

impl Statuses {
    fn of(sources: &[SourceStatus]) -> Self {
        Self {
            lines: sources
                .iter()
                .map(|source| (source.source.as_str().into(), line(source)))
                .collect(),
        }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.lines.contains_key(name)
    }

    pub(crate) fn lines(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.lines.iter().map(|(name, line)| (&**name, line))
    }
}

/// Name, address, silence_s, updates_per_s, fresh, stale, missing, ages in ms (mean, p95, maximum), code point, topics,
/// stale topics, replaced, number.
fn line(status: &SourceStatus) -> Value {
    let one = |value: f64| (value * 10.0).round() / 10.0;
    json!([
        status.source,
        status.address.to_string(),
        one(status.silence_s),
        one(status.updates_per_s),
        status.fresh,
        status.stale,
        status.missing,
        status.age_mean_ms.map(one),
        status.age_p95_ms.map(one),
        status.age_max_ms.map(one),
        status.dscp.map(|dscp| dscp.get()),
        status.topics.len(),
        status.stale_topics,
        status.replaced,
        status.seq,
    ])
}

/// Asks the monitor every 2 s while there are browsers, until it has ended.
pub(crate) async fn ask(hub: Arc<dyn Hub>, statuses: watch::Sender<Arc<Statuses>>) {
    loop {
        // One receiver is that from which those of browsers are made.
        if statuses.receiver_count() < 2 {
            tokio::time::sleep(LOOK).await;
            continue;
        }
        let asked = Arc::clone(&hub);
        let sources = tokio::task::spawn_blocking(move || asked.sources(MAX)).await;
        let Ok(Ok(sources)) = sources else { return };
        if statuses.send(Arc::new(Statuses::of(&sources))).is_err() {
            return;
        }
        tokio::time::sleep(EVERY).await;
    }
}
