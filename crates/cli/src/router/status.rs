//! `freshline router status`: settings and counters of a running router.

use freshline_net::router::{Order, Snapshot};

use super::{ordered, table};
use crate::failure::Failure;
use crate::output::Form;

/// Show settings and counters of a running router.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Show the router of this device.
    #[arg(long, value_name = "DEV")]
    dev: String,
    #[command(flatten)]
    form: Form,
}

pub(super) fn run(args: Args) -> Result<(), Failure> {
    let answer = ordered(&args.dev, Order::default())?;
    args.form.print(
        answer,
        table::print_answer,
        |answer| answer.report.clone(),
        |answer| Snapshot(answer.report),
    )
}
