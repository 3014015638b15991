//! `freshline receiver`: limits how much data other hosts may have in flight to this host.

mod attach;
mod detach;
mod metrics;
mod run;
mod status;

use clap::{Subcommand, ValueEnum};
use freshline_core::receiver::{Delta, Slope};
use freshline_kernel::receiver::{Law, Settings};

use crate::failure::Failure;
use crate::hold::failure;
use crate::output::Form;

/// Keep downloads from filling queues in the network by advertising smaller windows.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Attach(attach::Args),
    /// Show the attached programs and their counters, and for each remote address the round trip,
    /// the window, K, and the flow that keeps the queue. Needs root.
    Status(Form),
    Detach(detach::Args),
    Run(run::Args),
}

/// The law and its settings, for the commands that start the control.
#[derive(Debug, clap::Args)]
struct LawArgs {
    /// Choose the windows by this law.
    #[arg(long, value_enum, default_value_t = LawName::Rtac)]
    law: LawName,
    /// RTAC: let the round trip settle at this multiple of the minimum RTT; from 1.01 to 10
    /// [default: 1.38]
    #[arg(long, value_name = "RATIO")]
    theta: Option<f64>,
    /// RTAC: add this to the minimum RTT, for paths whose delay varies without any queue: 8ms for
    /// Wi-Fi, 18ms for LTE; or `learn`, to measure it by larger windows from time to time, which
    /// lengthens the queue if several hosts with RTAC share one [default: 0s]
    #[arg(long, value_name = "SPAN|learn")]
    delta: Option<Delta>,
    /// RTAC: use this K, the emulated RED queue's slope per packet, from 1e-13 to 1, instead of the
    /// K of the path. Queues are not tested then. Recommended: 1.5 / (theta - 1) / BDP^3, with the
    /// BDP in packets.
    #[arg(long, value_name = "K")]
    slope: Option<f64>,
    /// RTAC: apply exactly Algorithm 1 of the thesis, without any extension; needs --slope
    #[arg(long, requires = "slope", conflicts_with = "theta")]
    pure: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum LawName {
    /// Short queues, and a fair share alongside connections without control.
    Rtac,
    /// The baseline: the round trip settles at 3 times the minimum RTT, or the flow starves.
    Drwa,
}

impl LawArgs {
    fn law(&self) -> Result<Law, Failure> {
        let Settings { theta, delta, slope, .. } = Settings::default();
        let has_settings = self.theta.is_some() || self.delta.is_some() || self.slope.is_some();
        match self.law {
            LawName::Rtac => Ok(Law::Rtac(Settings {
                theta: self.theta.unwrap_or(theta),
                delta: self.delta.unwrap_or(delta),
                slope: self.slope.map_or(slope, Slope::Fixed),
                pure: self.pure,
            })),
            LawName::Drwa if has_settings => Err(Failure::Usage(miette::miette!(
                "`--theta`, `--delta` and `--slope` belong to RTAC; `--law drwa` has no settings"
            ))),
            LawName::Drwa => Ok(Law::Drwa),
        }
    }
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    match args.what {
        What::Attach(args) => attach::run(args),
        What::Status(form) => status::run(&form),
        What::Detach(args) => detach::run(args),
        What::Run(args) => run::run(args),
    }
}
