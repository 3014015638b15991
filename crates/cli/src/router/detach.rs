//! `freshline router detach`: ends freshness control in the kernel.

use freshline_kernel::{KernelError, ifc_qdisc};
use freshline_net::router::{Order, order};

use crate::failure::Failure;
use crate::hold::failure;

/// End freshness control in the kernel: restore the queueing discipline that the device had before
/// `attach`; queued packets are lost. Needs root.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Detach from this device.
    #[arg(long, value_name = "DEV")]
    dev: String,
}

pub(super) fn run(args: Args) -> Result<(), Failure> {
    match ifc_qdisc::detach(&args.dev) {
        Err(KernelError::NotAttached(_)) if order(&args.dev, Order::default()).is_ok() => {
            Err(Failure::Runtime(miette::miette!(
                "the router of {} runs in user space: it ends with its process, by Ctrl-C or SIGTERM",
                args.dev
            )))
        }
        ended => ended.map_err(failure),
    }
}
