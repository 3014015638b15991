//! Metrics for Prometheus, in its text format over HTTP.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::get;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, text};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

/// A number of something by name, with what it is.
pub type Column<S, T> = (&'static str, &'static str, fn(&S) -> T);

/// One metric, for each that has it, told apart by labels; none if there is nobody.
///
/// # Errors
/// Those of the encoder.
pub fn family<L: EncodeLabelSet, M: EncodeMetric>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    values: impl Iterator<Item = (L, M)>,
) -> Result<(), fmt::Error> {
    let mut values = values.peekable();
    let Some((_, first)) = values.peek() else { return Ok(()) };
    let mut family = encoder.encode_descriptor(name, help, None, first.metric_type())?;
    for (labels, value) in values {
        value.encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

/// A gauge a column, of each that has it, told apart by labels.
///
/// # Errors
/// Those of the encoder.
pub fn gauges<'a, S: 'a, T: Into<Option<f64>>, L: EncodeLabelSet>(
    encoder: &mut DescriptorEncoder<'_>,
    table: &[Column<S, T>],
    of: impl Iterator<Item = (L, &'a S)> + Clone,
) -> Result<(), fmt::Error> {
    columns(encoder, table, of, ConstGauge::<f64>::new)
}

/// A counter a column, of each that has it, told apart by labels.
///
/// # Errors
/// Those of the encoder.
pub fn counters<'a, S: 'a, T: Into<Option<u64>>, L: EncodeLabelSet>(
    encoder: &mut DescriptorEncoder<'_>,
    table: &[Column<S, T>],
    of: impl Iterator<Item = (L, &'a S)> + Clone,
) -> Result<(), fmt::Error> {
    columns(encoder, table, of, ConstCounter::<u64>::new)
}

fn columns<'a, S: 'a, N, T: Into<Option<N>>, L: EncodeLabelSet, M: EncodeMetric>(
    encoder: &mut DescriptorEncoder<'_>,
    table: &[Column<S, T>],
    of: impl Iterator<Item = (L, &'a S)> + Clone,
    metric: fn(N) -> M,
) -> Result<(), fmt::Error> {
    for (name, help, value) in table {
        let values = of.clone();
        let values = values.filter_map(|(labels, one)| Some((labels, metric(value(one).into()?))));
        family(encoder, name, help, values)?;
    }
    Ok(())
}

/// A counter a column, without labels.
///
/// # Errors
/// Those of the encoder.
pub fn totals<S>(
    encoder: &mut DescriptorEncoder<'_>,
    table: &[Column<S, u64>],
    of: &S,
) -> Result<(), fmt::Error> {
    for (name, help, value) in table {
        total(encoder, name, help, &ConstCounter::new(value(of)))?;
    }
    Ok(())
}

/// One metric without labels.
///
/// # Errors
/// Those of the encoder.
pub fn total(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    value: &impl EncodeMetric,
) -> Result<(), fmt::Error> {
    value.encode(encoder.encode_descriptor(name, help, None, value.metric_type())?)
}

/// Why metrics cannot be served.
#[derive(Debug, thiserror::Error)]
#[error("cannot serve metrics at {address}: {error}")]
pub struct MetricsError {
    address: SocketAddr,
    error: io::Error,
}

/// Serves `http://ADDRESS/metrics` on a thread of its own, each time what `collect` gives, or why
/// it gives nothing. Gives the address with the port that was chosen for port 0.
///
/// # Errors
/// [`MetricsError`] where the address cannot be listened at.
pub fn serve<C: Collector>(
    address: SocketAddr,
    collect: impl Fn() -> Result<C, String> + Send + Sync + 'static,
) -> Result<SocketAddr, MetricsError> {
    let failed = |error| MetricsError { address, error };
    let listener = std::net::TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let local = listener.local_addr().map_err(failed)?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    std::thread::spawn(move || {
        runtime.block_on(async {
            let served = async {
                let listener = tokio::net::TcpListener::from_std(listener)?;
                let router =
                    Router::new().route("/metrics", get(metrics)).with_state(Arc::new(collect));
                axum::serve(listener, router).await
            };
            if let Err(error) = served.await {
                tracing::warn!("metrics are not served any more: {error}");
            }
        });
    });
    Ok(local)
}

async fn metrics<C: Collector>(
    State(collect): State<Arc<impl Fn() -> Result<C, String>>>,
) -> impl IntoResponse {
    match collect() {
        Ok(collector) => match render(collector) {
            Ok(text) => (StatusCode::OK, text),
            Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        },
        Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, reason),
    }
}

/// The text that is served: what a collector gives, with the prefix `freshline_`.
///
/// # Errors
/// Those of the collector.
pub fn render(collector: impl Collector) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("freshline");
    registry.register_collector(Box::new(collector));
    let mut out = String::new();
    text::encode(&mut out, &registry)?;
    Ok(out)
}
