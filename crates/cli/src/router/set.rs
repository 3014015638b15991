//! `freshline router set`: changes a running router.

use freshline_core::router::AoiShare;
use freshline_core::unit::BitRate;
use freshline_net::router::Order;

use super::{ordered, table};
use crate::failure::Failure;
use crate::output::{print_json, printed};

/// Change the rate or the share of updates of a running router.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
EXAMPLES

    freshline router set --dev eth1 --aoi-share 0.3
    freshline router set --dev eth1 --rate 18mbit

EXIT CODES

0  the change was made, and the settings were printed
1  no router runs for the device
2  the flags cannot be understood, or the router refuses them")]
#[command(group(clap::ArgGroup::new("change").required(true).multiple(true)))]
pub(super) struct Args {
    /// Change the router of this device.
    #[arg(long, value_name = "DEV")]
    dev: String,
    /// Give updates this share of the link while other traffic is queued, too: 0 to 1.
    #[arg(long, value_name = "SHARE", group = "change")]
    aoi_share: Option<AoiShare>,
    /// Shape to this rate, such as 20mbit.
    #[arg(long, value_name = "RATE", group = "change")]
    rate: Option<BitRate>,
    /// Print the new settings as one JSON document.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: Args) -> Result<(), Failure> {
    let Args { dev, aoi_share, rate, json } = args;
    let answer = ordered(&dev, Order { aoi_share, rate })?;
    if json { print_json(&answer.report) } else { printed(table::print_answer(&answer)) }
}
