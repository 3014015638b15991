//! `freshline router status`: what a running router did so far.

use freshline_net::router::Order;

use super::ordered;
use crate::Failure;

/// Show how a running router is set and what it did so far.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The device that is shaped.
    #[arg(long, value_name = "DEV")]
    dev: String,
    /// Print it as one JSON document.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: Args) -> Result<(), Failure> {
    ordered(&args.dev, Order::default(), args.json)
}
