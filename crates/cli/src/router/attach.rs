//! `freshline router attach`: freshness control that stays, in the kernel where that has it.

use freshline_kernel::ifc_qdisc::{self, Settings};
use freshline_net::router::{Order, RouterConfig, Via, order};

use super::flags::Flags;
use super::run::route;
use crate::Failure;
use crate::hold::failure;

/// Hold what leaves through a device inside the kernel, as `run` does in user space. Needs root.
///
/// It stays when this command ends, until `freshline router detach`, or until the device is gone. A
/// kernel without queueing disciplines in eBPF (before Linux 6.16, or without CONFIG_NET_SCH_BPF) has
/// this command do as `run`: it says so, and shapes until Ctrl-C. The same goes for a queue that only user
/// space has: the kernel's is ifc, with ifil and a drop-tail queue.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
EXAMPLES

    freshline router attach --dev eth1 --rate 19mbit --queue ifc --aoi-share 0.5
    freshline router set --dev eth1 --aoi-share 0.3
    freshline router status --dev eth1
    freshline router detach --dev eth1

EXIT CODES

0  in place; or, in user space, ended by Ctrl-C
1  root is not to be had, or the device has a router already, or a queue that could not be restored;
   with --in-kernel, the kernel has no such disciplines
2  the flags or the file cannot be understood, or there is no such device")]
pub(super) struct Args {
    #[command(flatten)]
    flags: Flags,
    /// In the kernel or not at all.
    #[arg(long, conflicts_with_all = ["tun", "queue_number"])]
    in_kernel: bool,
}

pub(super) fn run(args: Args) -> Result<(), Failure> {
    let config = args.flags.config().map_err(Failure::Usage)?;
    let RouterConfig { device, via, rate, queue } = &config;
    let why = match Settings::new(*rate, queue).and_then(|settings| {
        ifc_qdisc::offered()?;
        Ok(settings)
    }) {
        Ok(settings) if args.in_kernel || *via == Via::default() => {
            if order(device, Order::default()).is_ok() {
                return Err(Failure::Runtime(miette::miette!(
                    "a `freshline router run` shapes {device} already; end its process first, by Ctrl-C or \
                     SIGTERM"
                )));
            }
            ifc_qdisc::attach(device, &settings).map_err(failure)?;
            eprintln!(
                "{device} at {rate}, queue {queue}: in the kernel, as its own queueing discipline; \
                 `freshline router detach --dev {device}` ends it"
            );
            return Ok(());
        }
        Ok(_) => "--tun and --queue-number are user space's".to_owned(),
        Err(error) if args.in_kernel || !error.is_lack() => return Err(failure(error)),
        Err(error) => error.to_string(),
    };
    eprintln!("in user space, until Ctrl-C, and not in the kernel: {why}");
    route(config, None, None, false)
}
