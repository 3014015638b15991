//! `freshline mesh`: fair shares for the nodes of a mesh.

mod attach;
mod metrics;
mod status;

use clap::Subcommand;
use freshline_core::mesh::{DtpaParams, Share};
use freshline_kernel::dtpa::{self, Left, Settings};

use crate::failure::Failure;
use crate::hold::failure;
use crate::output::Form;

/// Give the far nodes of a mesh their share: near ones wait before they send what is their own.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Attach(attach::Args),
    /// Change the settings of what `attach` began, for connections that run too. What is not given is
    /// as `attach` has it. Needs root.
    Set(Law),
    /// Show whether `freshline_dtpa` is registered, what it has done, and the connections of this
    /// network namespace that have chosen it. Needs root.
    Status(Form),
    /// End what `attach` began: no connection can choose `freshline_dtpa` any more. Those that have
    /// go on with it; what listens in this network namespace and has chosen it is given Reno. Needs
    /// root.
    Detach,
}

/// The settings of the law.
#[derive(Debug, clap::Args)]
struct Law {
    /// What every node is to get, in full segments a second: about what the border router carries,
    /// divided by the number of nodes. From 0.001 to 4 million.
    #[arg(long, value_name = "SEGMENTS", value_parser = share)]
    share: Share,
    /// Hold windows to at most this many segments, 2 or more: no more than the queue of a node takes.
    #[arg(long, value_name = "SEGMENTS", default_value_t = 8)]
    max_window: u32,
    /// Halve the counts of losses after this many segments, so that old losses are forgotten;
    /// default: never.
    #[arg(long, value_name = "SEGMENTS")]
    memory: Option<u32>,
    /// Do not hold windows to the peak of Reno's saw, 4/3 of the a/sqrt(p) of the period and one
    /// segment more. The law as printed has no such bound.
    #[arg(long)]
    no_peak_bound: bool,
}

fn share(text: &str) -> Result<Share, String> {
    let number = text.parse().ok().and_then(Share::per_second);
    number.ok_or_else(|| "give segments a second, from 0.001 to 4 million".to_owned())
}

impl Law {
    fn settings(&self) -> Settings {
        let Self { share, max_window, memory, no_peak_bound } = *self;
        let (max_window, peak_bound) = (Some(max_window), !no_peak_bound);
        let params = DtpaParams { max_window, memory, peak_bound, ..DtpaParams::default() };
        Settings { share, params }
    }
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    match args.what {
        What::Attach(args) => attach::run(args),
        What::Set(law) => dtpa::set(&law.settings()).map_err(failure),
        What::Status(form) => status::run(&form),
        What::Detach => dtpa::detach().map(say).map_err(failure),
    }
}

/// What the end leaves behind.
fn say(Left { is_default, listeners }: Left) {
    if listeners > 0 {
        say!(
            "Reno is what {listeners} listening sockets of this network namespace give now to what \
             they accept"
        );
    }
    if is_default {
        say!(
            "new connections of this network namespace still have it, until its default is \
             another: `sysctl -w net.ipv4.tcp_congestion_control=reno`"
        );
    }
}
