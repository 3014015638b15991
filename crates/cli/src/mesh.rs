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

/// Give far nodes of a mesh their fair share: near nodes delay their own traffic.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Attach(attach::Args),
    /// Change the settings that `attach` made, also for existing connections. Settings that are not
    /// given get the defaults of `attach`. Needs root.
    Set(Law),
    /// Show whether `freshline_dtpa` is registered, its counters, and the connections of this
    /// network namespace that use it. Needs root.
    Status(Form),
    /// Undo `attach`: no new connection can choose `freshline_dtpa`. Existing connections keep it;
    /// listening sockets of this network namespace that chose it are switched to Reno. Needs root.
    Detach,
}

/// The settings of the law.
#[derive(Debug, clap::Args)]
struct Law {
    /// Give every node this share, in full segments per second: about the throughput of the border
    /// router, divided by the number of nodes. From 0.001 to 4 million.
    #[arg(long, value_name = "SEGMENTS", value_parser = share)]
    share: Share,
    /// Limit windows to this many segments, 2 or more: at most the queue limit of a node.
    #[arg(long, value_name = "SEGMENTS", default_value_t = 8)]
    max_window: u32,
    /// Halve the loss counters after this many segments, so that old losses are forgotten; default:
    /// never.
    #[arg(long, value_name = "SEGMENTS")]
    memory: Option<u32>,
    /// Do not limit windows to the peak of Reno's sawtooth, which is 4/3 of the a/sqrt(p) of the
    /// period, plus one segment. The published law has no such limit.
    #[arg(long)]
    no_peak_bound: bool,
}

fn share(text: &str) -> Result<Share, String> {
    let number = text.parse().ok().and_then(Share::per_second);
    number.ok_or_else(|| "give segments per second, from 0.001 to 4 million".to_owned())
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

/// Prints what the detached law leaves in place.
fn say(Left { is_default, listeners }: Left) {
    if listeners > 0 {
        say!(
            "{listeners} listening sockets of this network namespace now give Reno to the \
             connections that they accept"
        );
    }
    if is_default {
        say!(
            "new connections of this network namespace still use it, until its default is \
             another: `sysctl -w net.ipv4.tcp_congestion_control=reno`"
        );
    }
}
