//! Metrics for Prometheus, in its text format over HTTP.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::get;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use super::Replaced;
use crate::monitor::{Asker, SourceStatus};

/// Why metrics cannot be served.
#[derive(Debug, thiserror::Error)]
#[error("cannot serve metrics at {address}: {error}")]
pub struct MetricsError {
    address: SocketAddr,
    error: io::Error,
}

/// What each request needs.
struct Context {
    asker: Asker,
    /// Sources that get labels, at most.
    most: usize,
    replaced: Replaced,
}

/// Serves `http://ADDRESS/metrics` on a thread of its own; `most` bounds the number of labels.
/// Gives the address with the port that was chosen for port 0.
///
/// # Errors
/// [`MetricsError`] where the address cannot be listened at.
pub fn serve(
    address: SocketAddr,
    asker: Asker,
    most: usize,
    replaced: Replaced,
) -> Result<SocketAddr, MetricsError> {
    let failed = |error| MetricsError { address, error };
    let listener = std::net::TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let local = listener.local_addr().map_err(failed)?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let context = Arc::new(Context { asker, most, replaced });
    std::thread::spawn(move || {
        runtime.block_on(async {
            let served = async {
                let listener = tokio::net::TcpListener::from_std(listener)?;
                let router = Router::new().route("/metrics", get(metrics)).with_state(context);
                axum::serve(listener, router).await
            };
            if let Err(error) = served.await {
                tracing::warn!("metrics are not served any more: {error}");
            }
        });
    });
    Ok(local)
}

async fn metrics(State(context): State<Arc<Context>>) -> impl IntoResponse {
    // The monitor answers within one turn of its loop.
    match context.asker.sources(context.most) {
        Ok(sources) => match render(sources, context.replaced.load(Ordering::Relaxed)) {
            Ok(text) => (StatusCode::OK, text),
            Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        },
        Err(gone) => (StatusCode::SERVICE_UNAVAILABLE, gone.to_string()),
    }
}

fn render(sources: Vec<SourceStatus>, replaced: u64) -> Result<String, std::fmt::Error> {
    let mut registry = Registry::with_prefix("freshline");
    registry.register_collector(Box::new(Sources { sources, replaced }));
    let mut out = String::new();
    text::encode(&mut out, &registry)?;
    Ok(out)
}

#[derive(Debug)]
struct Sources {
    sources: Vec<SourceStatus>,
    replaced: u64,
}

/// A number of a source, by name.
type Column<T> = (&'static str, &'static str, fn(&SourceStatus) -> Option<T>);

const GAUGES: [Column<f64>; 6] = [
    ("age_seconds", "Age of the freshest state", |s| s.age_ms.map(|ms| ms / 1e3)),
    ("age_mean_seconds", "Time-average age", |s| s.age_mean_ms.map(|ms| ms / 1e3)),
    ("age_p95_seconds", "95th percentile of age", |s| s.age_p95_ms.map(|ms| ms / 1e3)),
    ("peak_age_mean_seconds", "Mean peak age", |s| s.peak_age_mean_ms.map(|ms| ms / 1e3)),
    ("update_rate", "Fresh updates per second", |s| Some(s.updates_per_s)),
    ("loss_ratio", "Share of updates that have not come", |s| {
        let all = f64::from(s.fresh) + f64::from(s.stale) + f64::from(s.missing);
        (all > 0.0).then(|| f64::from(s.missing) / all)
    }),
];

const COUNTERS: [Column<u64>; 3] = [
    ("updates_fresh", "Updates that were the freshest", |s| Some(s.fresh.into())),
    ("updates_stale", "Updates that came after a fresher one", |s| Some(s.stale.into())),
    ("updates_missing", "Updates that have not come", |s| Some(s.missing.into())),
];

impl Collector for Sources {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        for (name, help, value) in GAUGES {
            self.column(&mut encoder, name, help, |source| value(source).map(ConstGauge::new))?;
        }
        for (name, help, value) in COUNTERS {
            self.column(&mut encoder, name, help, |source| value(source).map(ConstCounter::new))?;
        }
        let replaced = ConstCounter::new(self.replaced);
        let kind = replaced.metric_type();
        let help = "States that a newer one replaced before a consumer took them";
        replaced.encode(encoder.encode_descriptor("outputs_replaced", help, None, kind)?)
    }
}

impl Sources {
    /// One metric of all sources that have it.
    fn column<M: EncodeMetric>(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        name: &str,
        help: &str,
        value: impl Fn(&SourceStatus) -> Option<M>,
    ) -> Result<(), std::fmt::Error> {
        let values: Vec<_> =
            self.sources.iter().filter_map(|source| Some((source, value(source)?))).collect();
        let Some((_, first)) = values.first() else { return Ok(()) };
        let mut family = encoder.encode_descriptor(name, help, None, first.metric_type())?;
        for (source, value) in &values {
            let labels = [("source", source.source.as_str())];
            value.encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}
