//! `freshline router`: freshness control in a host that forwards packets.

mod attach;
mod detach;
mod flags;
mod run;
mod set;
mod status;
mod suggest;
mod table;

use clap::Subcommand;
use freshline_core::router::RouterReport;
use freshline_kernel::KernelError;
use freshline_kernel::ifc_qdisc::{self, Change};
use freshline_net::router::{ControlError, Order, order};

use crate::failure::Failure;
use crate::hold::failure;

/// Shape the packets that leave through a network device, and keep queued updates fresh.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Run(run::Args),
    Attach(attach::Args),
    Set(set::Args),
    Status(status::Args),
    Detach(detach::Args),
    Suggest(suggest::Args),
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    match args.what {
        What::Run(args) => run::run(args),
        What::Attach(args) => attach::run(args),
        What::Detach(args) => detach::run(args),
        What::Set(args) => set::run(args),
        What::Status(args) => status::run(args),
        What::Suggest(args) => suggest::run(args),
    }
}

/// The number of flows that are reported.
const FLOWS: usize = 20;

/// The report of a device's router, and whether it runs in the kernel.
struct Answer {
    report: RouterReport,
    is_in_kernel: bool,
}

/// Sends an order to the router of a device, in the kernel or in user space.
fn ordered(device: &str, what: Order) -> Result<Answer, Failure> {
    if let Some(report) = ordered_in_kernel(device, what)? {
        return Ok(Answer { report, is_in_kernel: true });
    }
    let report = order(device, what).map_err(|error| {
        let usage = matches!(error, ControlError::Refused(_));
        let report = miette::Report::msg(error);
        if usage { Failure::Usage(report) } else { Failure::Runtime(report) }
    })?;
    Ok(Answer { report, is_in_kernel: false })
}

/// Whether the kernel shapes a device. Works even if the kernel hides the discipline's counters.
fn is_in_kernel(device: &str) -> bool {
    matches!(ifc_qdisc::is_attached(device), Ok(true))
}

/// Like [`ordered`], in the kernel only; `None` if the device has none of this project's
/// disciplines.
fn ordered_in_kernel(device: &str, what: Order) -> Result<Option<RouterReport>, Failure> {
    let Order { aoi_share, rate } = what;
    let report = || ifc_qdisc::report(device, FLOWS);
    let answer = if what == Order::default() {
        report()
    } else {
        match ifc_qdisc::set(device, Change { aoi_share, rate }) {
            Ok(true) => report(),
            Ok(false) => Ok(None),
            Err(error) => Err(error),
        }
    };
    match answer {
        Ok(report) => Ok(report),
        // A router in user space may have created its device itself, and also takes orders from its
        // own user.
        Err(KernelError::NoDevice(_)) => Ok(None),
        Err(KernelError::Privileges(_) | KernelError::HiddenPins) if !is_in_kernel(device) => {
            Ok(None)
        }
        Err(error) => Err(failure(error)),
    }
}
