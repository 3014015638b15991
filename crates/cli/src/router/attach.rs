//! `freshline router attach`: freshness control that outlives the command, in the kernel if that
//! supports it.

use freshline_kernel::ifc_qdisc::{self, Settings};
use freshline_net::router::{Order, Via, order};

use super::flags::{Chosen, Flags, say_updates};
use super::run::route;
use super::table::at_rate;
use crate::failure::Failure;
use crate::hold::failure;

/// Shape and schedule a device's packets inside the kernel, as `run` does in user space. Needs
/// root.
///
/// The control stays when this command ends, until `freshline router detach`, or until the device
/// is gone. It needs a kernel with queueing disciplines in eBPF (Linux 6.16 with
/// CONFIG_NET_SCH_BPF) and --queue ifc, whose queue of drop-averse packets is fq_codel (default),
/// codel or a FIFO with a limit. Otherwise the command fails and prints the reason; with --or-run
/// it shapes in user space until Ctrl-C.
///
/// Without --rate packets leave at the device's own rate, and queue here while the device's queue
/// is full (byte queue limits, or a full ring). A device that never stops its queue, such as veth
/// or a bridge, then leaves nothing to schedule: shape it with --rate.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
EXAMPLES

    freshline router attach --dev eth1 --rate 19mbit --queue ifc --aoi-share 0.5
    freshline router attach --dev eth1
    freshline router set --dev eth1 --aoi-share 0.3
    freshline router status --dev eth1
    freshline router detach --dev eth1

EXIT CODES

0  in place; with --or-run, in user space and ended by Ctrl-C
1  not root, or the device has a router already, or a queue that could not be restored; or, without
   --or-run, the kernel has no such disciplines
2  the flags or the file cannot be understood, or there is no such device; or, without --or-run, the
   queue is one that only user space has")]
pub(super) struct Args {
    #[command(flatten)]
    flags: Flags,
    /// Shape in user space and in the foreground, like `router run`, if the kernel cannot.
    #[arg(long)]
    or_run: bool,
}

pub(super) fn run(args: Args) -> Result<(), Failure> {
    let chosen = args.flags.chosen().map_err(Failure::Usage)?;
    let Chosen { device, via, rate, framing, queue } = &chosen;
    if *via != Via::default() && !args.or_run {
        return Err(Failure::Usage(miette::miette!(
            "--tun and --queue-number are for user space; use `freshline router run`, or add --or-run"
        )));
    }
    let why = match Settings::new(*rate, *framing, queue).and_then(|settings| {
        ifc_qdisc::offered()?;
        Ok(settings)
    }) {
        Ok(settings) if *via == Via::default() => {
            if order(device, Order::default()).is_ok() {
                return Err(Failure::Runtime(miette::miette!(
                    "a `freshline router run` shapes {device} already; end its process first, by Ctrl-C or \
                     SIGTERM"
                )));
            }
            ifc_qdisc::attach(device, &settings).map_err(failure)?;
            say!(
                "{device} {}, queue {queue}: in the kernel, as its own queueing discipline; \
                 `freshline router detach --dev {device}` ends it",
                at_rate(*rate)
            );
            say_updates(queue, "look like streams by their headers");
            return Ok(());
        }
        Ok(_) => "--tun and --queue-number are for user space".to_owned(),
        Err(error) if !args.or_run || !error.is_lack() => return Err(failure(error)),
        Err(error) => error.to_string(),
    };
    let config = chosen.with_rate().map_err(Failure::Usage)?;
    say!("in user space, until Ctrl-C, and not in the kernel: {why}");
    route(config, None, None, false)
}
