//! What the commands share that print metrics for Prometheus once, of one moment.

use std::fmt;
use std::io::{self, Write};

use freshline_net::metrics::render;
use miette::IntoDiagnostic;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};

use crate::Failure;
use crate::output::printed;

/// A number of something by name, with what it is.
pub(crate) type Column<S, T> = (&'static str, &'static str, fn(&S) -> T);

/// Prints them on standard output.
pub(crate) fn print(snapshot: impl Collector) -> Result<(), Failure> {
    let text = render(snapshot).into_diagnostic().map_err(Failure::Runtime)?;
    printed(write!(io::stdout(), "{text}"))
}

/// One metric, for each that has it, told apart by labels.
pub(crate) fn family<L: EncodeLabelSet, M: EncodeMetric>(
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
