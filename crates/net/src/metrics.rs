//! Metrics over HTTP, in the [text format of Prometheus](https://prometheus.io/docs/instrumenting/exposition_formats/)
//! 0.0.4, or in [OpenMetrics](https://prometheus.io/docs/specs/om/open_metrics_spec/) 1.0.0 where the client asks for it.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::header::{ACCEPT, CONTENT_TYPE, VARY};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, text};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::bounded_listener::BoundedListener;

/// A metric's name, its help, and the function that reads it.
pub type Column<S, T> = (&'static str, &'static str, fn(&S) -> T);

/// A metric for each labelled entry; omitted if there are no entries.
///
/// # Errors
/// The encoder's errors.
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

/// One gauge per column, for each labelled entry that has a value.
///
/// # Errors
/// The encoder's errors.
pub fn gauges<'a, S: 'a, T: Into<Option<f64>>, L: EncodeLabelSet>(
    encoder: &mut DescriptorEncoder<'_>,
    table: &[Column<S, T>],
    of: impl Iterator<Item = (L, &'a S)> + Clone,
) -> Result<(), fmt::Error> {
    columns(encoder, table, of, ConstGauge::<f64>::new)
}

/// One counter per column, for each labelled entry that has a value.
///
/// # Errors
/// The encoder's errors.
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

/// One counter per column, without labels.
///
/// # Errors
/// The encoder's errors.
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

/// Serves `http://ADDRESS/metrics` on its own thread; each request calls `collect` and serves its
/// result, or its error. Returns the address with the port that the system chose for port 0.
///
/// # Errors
/// [`MetricsError`] if it cannot listen at the address.
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
                axum::serve(BoundedListener::new(listener), router).await
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
    headers: HeaderMap,
) -> Response {
    let accept: Vec<_> =
        headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
    let format = Format::accepted(&accept.join(","));
    match collect() {
        Ok(collector) => match render_as(collector, format) {
            Ok(text) => {
                ([(CONTENT_TYPE, format.content_type()), (VARY, "Accept")], text).into_response()
            }
            Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
        },
        Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, reason).into_response(),
    }
}

/// The format of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// The text format of Prometheus, version 0.0.4.
    #[default]
    Prometheus,
    /// OpenMetrics, version 1.0.0.
    OpenMetrics,
}

impl Format {
    /// The format that a client prefers by its `Accept` header: OpenMetrics if it is listed with at
    /// least the quality of plain text, and Prometheus's text for all other clients.
    pub fn accepted(accept: &str) -> Self {
        let quality = |wanted: &[&str]| {
            let offers = accept.split(',').filter_map(|offer| {
                let mut parts = offer.split(';').map(str::trim);
                let media = parts.next()?;
                if !wanted.iter().any(|one| one.eq_ignore_ascii_case(media)) {
                    return None;
                }
                let mut quality = 1.0;
                for parameter in parts {
                    let (key, value) = parameter.split_once('=')?;
                    let value = value.trim().trim_matches('"');
                    match key.trim().to_ascii_lowercase().as_str() {
                        "q" => quality = value.parse().ok()?,
                        "version" if wanted[0] == OPEN_METRICS && value != "1.0.0" => return None,
                        _ => (),
                    }
                }
                Some(quality)
            });
            offers.fold(0.0, f64::max)
        };
        let open = quality(&[OPEN_METRICS]);
        if open > 0.0 && open >= quality(&["text/plain", "text/*", "*/*"]) {
            Self::OpenMetrics
        } else {
            Self::Prometheus
        }
    }

    /// The value of `Content-Type`.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

const OPEN_METRICS: &str = "application/openmetrics-text";

/// Metrics of a collector in the text format of Prometheus, with the prefix `freshline_`.
///
/// # Errors
/// The collector's errors.
pub fn render(collector: impl Collector) -> Result<String, fmt::Error> {
    render_as(collector, Format::Prometheus)
}

/// Metrics of a collector in a format, with the prefix `freshline_`.
///
/// # Errors
/// The collector's errors.
pub fn render_as(collector: impl Collector, format: Format) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("freshline");
    registry.register_collector(Box::new(collector));
    let mut open = String::new();
    text::encode(&mut open, &registry)?;
    Ok(match format {
        Format::OpenMetrics => open,
        Format::Prometheus => prometheus(&open),
    })
}

/// Converts OpenMetrics text to Prometheus text. There a counter's family has the name of its
/// samples, with `_total`, and there is neither `# UNIT` nor `# EOF`.
fn prometheus(open: &str) -> String {
    let mut out = String::with_capacity(open.len() + open.len() / 8);
    let mut help = None;
    for line in open.lines() {
        if let Some(text) = line.strip_prefix("# HELP ") {
            help = text.split_once(' ');
        } else if let Some((name, kind)) =
            line.strip_prefix("# TYPE ").and_then(|text| text.split_once(' '))
        {
            let suffix = if kind == "counter" { "_total" } else { "" };
            if let Some((_, help)) = help.take().filter(|(of, _)| *of == name) {
                out.extend(["# HELP ", name, suffix, " ", help, "\n"]);
            }
            out.extend(["# TYPE ", name, suffix, " ", kind, "\n"]);
        } else if !line.starts_with('#') {
            out.extend([line, "\n"]);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::promtool;

    #[derive(Debug)]
    struct Two;

    impl Collector for Two {
        fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
            totals(&mut encoder, &[("datagrams", "Datagrams received", |()| 7)], &())?;
            let named = [([("source", "a\"b\\c\nd")], &())];
            let ages: [Column<(), f64>; 1] = [("age_seconds", "Age", |()| 0.25)];
            gauges(&mut encoder, &ages, named.into_iter())
        }
    }

    #[test]
    fn a_counter_has_one_name_in_each_format() {
        let plain = render(Two).unwrap();
        assert_eq!(
            plain,
            "# HELP freshline_datagrams_total Datagrams received\n\
             # TYPE freshline_datagrams_total counter\n\
             freshline_datagrams_total 7\n\
             # HELP freshline_age_seconds Age\n\
             # TYPE freshline_age_seconds gauge\n\
             freshline_age_seconds{source=\"a\\\"b\\\\c\\nd\"} 0.25\n"
        );
        promtool::check(&plain);
        let open = render_as(Two, Format::OpenMetrics).unwrap();
        assert!(open.starts_with("# HELP freshline_datagrams Datagrams received\n"), "{open}");
        assert!(open.contains("\nfreshline_datagrams_total 7\n"), "{open}");
        assert!(open.ends_with("# EOF\n"), "{open}");
    }

    #[test]
    fn open_metrics_are_for_clients_that_prefer_them() {
        // The headers of Prometheus 2.42 and 3, and of curl, a browser and others.
        let open = [
            "application/openmetrics-text;version=1.0.0,application/openmetrics-text;\
             version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            "application/openmetrics-text",
            "Application/OpenMetrics-Text; version=\"1.0.0\"; charset=utf-8",
            "text/plain;q=0.5, application/openmetrics-text; version=1.0.0 ; q=0.5",
        ];
        let plain = [
            "",
            "*/*",
            "text/html,application/xhtml+xml,*/*;q=0.8",
            "text/plain;version=0.0.4",
            "text/plain, application/openmetrics-text;q=0.5",
            "application/openmetrics-text;q=0",
            "application/openmetrics-text;version=0.0.1, text/plain;q=0.5",
            "application/openmetrics-text;q=x",
            ";,;=q",
        ];
        for accept in open {
            assert_eq!(Format::accepted(accept), Format::OpenMetrics, "{accept}");
        }
        for accept in plain {
            assert_eq!(Format::accepted(accept), Format::Prometheus, "{accept}");
        }
    }
}
