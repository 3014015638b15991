//! `freshline uplink attach`: starts control that outlives the command.

use freshline_kernel::sorpc::{self, Bands, Below, Held};

use super::{HIDDEN, Law, failure};
use crate::failure::Failure;
use crate::hold::{Term, keep};
use crate::privileges::DETACHES;

/// Start to give uploads the lowest priority among all packets that leave through a device. Needs
/// root.
///
/// The control stays in the kernel when this command ends, until `freshline uplink detach` or the
/// next boot. TCP connections whose send buffer is filled are uploads; their packets leave when no
/// other packet is queued.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
EXAMPLES

An uplink of 20 Mbit/s behind a modem:

    freshline uplink attach --dev eth0 --rate 19mbit
    freshline uplink status
    freshline uplink detach

A device that is the bottleneck itself, and has the kernel's usual queue, pfifo_fast:

    freshline uplink attach --dev wwan0

EXIT CODES

0  attached, or, with --foreground, ended by Ctrl-C
1  no root, the kernel lacks something, the device is under control already, or has a queue that
   could not be restored after --rate
2  the flags cannot be understood, or there is no such device")]
pub(super) struct Args {
    #[command(flatten)]
    law: Law,
    #[command(flatten)]
    term: Term,
}

pub(super) fn run(args: Args) -> Result<(), Failure> {
    let ended = args.term.end()?;
    let held = sorpc::attach(&args.law.dev, &args.law.settings(), None).map_err(failure)?;
    let device = args.law.dev;
    let said = match held.bands() {
        Bands::Ours => {
            format!("controlling packets that leave through {device}, in separate bands")
        }
        Bands::Theirs(kind) => {
            format!("controlling packets that leave through {device}, in the bands of its {kind}")
        }
        Bands::Nobodys(kind) => format!(
            "marking packets that leave through {device}, but its {kind} has no bands: give --rate, or put \
             pfifo_fast there"
        ),
    };
    let below = Below::of(&device);
    if *held.bands() != Bands::Ours && below.may_hide_a_queue() {
        say!("{device} has {}{HIDDEN}", below.describe());
    }
    keep(held, ended, &said, Held::pin, Held::release, DETACHES).map_err(failure)
}
