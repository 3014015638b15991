//! The flags that limit the sources that a monitor holds, and the sources that metrics name.

use std::net::SocketAddr;

use clap::value_parser;
use freshline_core::session::{MonitorParams, Names};
use freshline_core::unit::{Bytes, Span};
use miette::miette;

use crate::failure::Failure;

/// The sources that a monitor holds, and for how long.
#[derive(Debug, clap::Args)]
pub(crate) struct HeldArgs {
    /// Hold at most N sources. If all places are taken, a new source displaces another one: from
    /// the token or certificate with most sources, within it from the network with most, within
    /// that from the address with most; the new source is refused if its own token, network or
    /// address holds as many. A displaced source may be live, so set N above the number of your
    /// sources. A sixteenth of the places is reserved for returning sources, under a name that they
    /// held for a minute.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = value_parser!(u32).range(1..), help_heading = "Limits")]
    max_sources: u32,
    /// Hold at most N sources per address (per /64 of IPv6) with the same token or certificate, and
    /// refuse others. Default: as many as --max-sources allows.
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..), help_heading = "Limits")]
    max_sources_per_peer: Option<u32>,
    /// Accept these names of sources: `plain` ones, of ASCII letters, digits and . _ : / @ + -, or
    /// `any`. Programs that receive states can use plain names as file names and arguments.
    #[arg(long, value_name = "WHICH", default_value = "plain", help_heading = "Security")]
    names: WhichNames,
    /// Accept states up to this size; a longer one is refused, and its session closed.
    #[arg(long, value_name = "SIZE", default_value = "8MiB", help_heading = "Limits")]
    max_payload: Bytes,
    /// Hold at most this much data of states that arrive in several parts, complete or not, of all
    /// sources together. Beyond it further parts are dropped, and their sources send them again; a
    /// quarter more is reserved for networks that hold little. Outputs of a monitor copy states:
    /// --exec up to 256 MiB, --out up to 64 MiB.
    #[arg(long, value_name = "SIZE", default_value = "256MiB", help_heading = "Limits")]
    max_large: Bytes,
    /// Close the session of a source that has been silent for this long. If the source has a name,
    /// reports and metrics keep it, with growing age, until --forget.
    #[arg(long, value_name = "TIME", default_value = "60s", help_heading = "Limits")]
    idle_timeout: Span,
    /// Remove a silent source with a name from reports and metrics after this long.
    #[arg(long, value_name = "TIME", default_value = "24h", help_heading = "Limits")]
    pub(crate) forget: Span,
}

/// One in this many places is reserved for returning sources.
const RESERVED: usize = 16;

/// The names of sources that are accepted.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum WhichNames {
    Plain,
    Any,
}

impl HeldArgs {
    /// Rejects limits with which no source could stay.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if self.idle_timeout < Span::from_secs(1) {
            return Err(Failure::Usage(miette!(
                "--idle-timeout must be at least 1s; sources pause between updates"
            )));
        }
        Ok(())
    }

    pub(crate) fn params(&self) -> MonitorParams {
        MonitorParams {
            names: match self.names {
                WhichNames::Plain => Names::Plain,
                WhichNames::Any => Names::Any,
            },
            max_sources: self.max_sources as usize,
            max_sources_per_peer: self.max_sources_per_peer.unwrap_or(self.max_sources) as usize,
            reserved: self.max_sources as usize / RESERVED,
            max_payload: usize::try_from(self.max_payload.get()).unwrap_or(usize::MAX),
            max_large: usize::try_from(self.max_large.get()).unwrap_or(usize::MAX),
            idle: self.idle_timeout,
            ..MonitorParams::default()
        }
    }
}

/// The address of metrics, and the sources that they name.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct MetricsArgs {
    /// Serve metrics for Prometheus at http://ADDR/metrics.
    #[arg(long = "metrics", value_name = "ADDR", help_heading = "Output")]
    pub(crate) address: Option<SocketAddr>,
    /// Name at most N sources in metrics and in the summary; the others count only in the totals.
    #[arg(
        long = "metrics-sources",
        value_name = "N",
        default_value_t = 100,
        help_heading = "Output"
    )]
    pub(crate) sources: usize,
}
