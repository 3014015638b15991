//! `freshline router status`: what a running router did so far.

use freshline_net::router::{Order, Snapshot};

use super::{ordered, table};
use crate::failure::Failure;
use crate::output::Form;

/// Show how a running router is set and what it did so far.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The device that is shaped.
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
