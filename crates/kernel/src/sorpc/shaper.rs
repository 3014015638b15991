//! Bands of our own, behind a shaper: what a device's own queue cannot offer.
//!
//! ```text
//!  HTB ── link: rate ─┬─ urgent: guaranteed all of it ──────► pfifo
//!                     ├─ bulk 0: guaranteed nothing, lent ──► pfifo
//!                     ┊   …
//!                     └─ bulk 15 ──────────────────────────► pfifo
//! ```
//!
//! HTB serves classes within their guarantee first. The urgent class is always, so that the bulk
//! classes live on what it leaves, which the link's class lends them: strict priority. Among
//! themselves they take turns (deficit round robin), so that uploads in different classes share
//! evenly.
//!
//! Where nobody sets priorities, all is urgent: a shaper without bands.

use std::io;

use freshline_core::unit::{BitRate, Bytes, Span};
use netlink_packet_core::DefaultNla;
use netlink_packet_route::tc::TcHandle;

use super::{BACKGROUND, INTERACTIVE};
use crate::device::Device;
use crate::error::KernelError;
use crate::qdisc::{Told, TrafficControl, Waiting, attributes, to_bytes};

/// The number by which our HTB is known again.
const MAJOR: u16 = 0x50c0;
const ROOT: TcHandle = TcHandle { major: MAJOR, minor: 0 };
const LINK: TcHandle = TcHandle { major: MAJOR, minor: 1 };
/// A class's number is its packets' priority. Queues that they meet later, of a device below this
/// one, read the last bits of it ([`PRIORITY_BITS`]), which say the same as without a shaper.
const URGENT: TcHandle = TcHandle { major: MAJOR, minor: INTERACTIVE as u16 };
const FIRST_BULK: u16 = 1 << PRIORITY_BITS | BACKGROUND as u16;

/// `TC_PRIO_MAX` of <linux/pkt_sched.h> in bits, as in `intf.h`.
const PRIORITY_BITS: u16 = 4;

/// How many bulk classes there are: for the uploads of a host, seldom more; and a power of two.
const BULK_CLASSES: u16 = 16;

/// A frame of Ethernet.
const FRAME: Bytes = Bytes::new(1514);

/// How late the kernel's timer may be without that the link is idle: a timer of the scheduler, on
/// a processor that is busy.
const LATEST: Span = Span::from_millis(2);

/// How much a class sends before it is another's turn. TCP passes on as one packet what it sends in
/// 1 ms, and two segments at least; HTB serves such packets evenly by their bytes only if they are
/// no larger than a turn.
const TURN: Span = Span::from_millis(2);
const LEAST_TURN: u64 = 2 * FRAME.get();
/// TCP's largest packet (`GSO_MAX_SIZE`), if it is not told otherwise.
const LARGEST_TURN: u64 = 1 << 16;

/// What may wait in a class: at the full rate for so long, but a few packets at least. TCP keeps
/// its own packets in the kernel's queues far below (TCP small queues); this is for all else.
const LONGEST_WAIT: Span = Span::from_millis(100);
const FEWEST_WAITING: u64 = 32;

/// What HTB takes for a guarantee of nothing, in bytes per second.
const NOTHING: u64 = 1;

/// HTB counts in units of 64 ns.
const TICK_NS: u64 = 64;

/// Numbers of HTB's attributes (`TCA_HTB_*` of <linux/pkt_sched.h>).
const PARMS: u16 = 1;
const INIT: u16 = 2;
const RATE64: u16 = 6;
const CEIL64: u16 = 7;

/// The priority of urgent packets, the first of bulk ones, and how many more of these there are, by
/// `1 << PRIORITY_BITS` apart.
pub(super) fn priorities() -> (u32, u32, u32) {
    (URGENT.into(), bulk(0).into(), u32::from(BULK_CLASSES) - 1)
}

/// Puts it in place of the root. What waits there is lost.
pub(super) fn shape(
    control: &TrafficControl,
    device: &Device,
    rate: BitRate,
) -> Result<(), KernelError> {
    build(control, device.index, rate).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => KernelError::Missing {
            feature: "the queueing discipline HTB",
            remedy: "`modprobe sch_htb`, or take one that is built with CONFIG_NET_SCH_HTB",
        },
        _ => KernelError::device("shape", &device.name)(error),
    })
}

fn build(control: &TrafficControl, device: u32, rate: BitRate) -> io::Result<()> {
    let all = rate.as_bps() / 8;
    control.put_qdisc(device, TcHandle::ROOT, ROOT, attributes("htb", htb()))?;
    control.add_class(device, ROOT, LINK, class(all, all, 0))?;
    control.add_class(device, LINK, URGENT, class(all, all, 0))?;
    for number in 0..BULK_CLASSES {
        control.add_class(device, LINK, bulk(number), class(NOTHING, all, 1))?;
    }
    for leaf in [URGENT].into_iter().chain((0..BULK_CLASSES).map(bulk)) {
        let limit = waiting_at_most(rate).to_ne_bytes().to_vec();
        control.put_qdisc(device, leaf, TcHandle::UNSPEC, attributes("pfifo", limit))?;
    }
    Ok(())
}

/// Whether this is ours.
pub(super) fn is_ours(told: &Told) -> bool {
    told.parent == TcHandle::ROOT && told.handle == ROOT && told.kind() == "htb"
}

/// What waits in the urgent class, and in all bulk classes; nothing where our shaper is not.
pub(super) fn waiting(control: &TrafficControl, device: u32) -> io::Result<Option<[Waiting; 2]>> {
    if !control.qdiscs(device)?.iter().any(is_ours) {
        return Ok(None);
    }
    let mut bands = [Waiting::default(); 2];
    for class in control.classes(device)? {
        let band = match class.handle {
            TcHandle { major: MAJOR, minor: FIRST_BULK.. } => &mut bands[1],
            URGENT => &mut bands[0],
            _ => continue,
        };
        let Waiting { packets, bytes, drops } = class.waiting();
        band.packets += packets;
        band.bytes += bytes;
        band.drops += drops;
    }
    Ok(Some(bands))
}

fn bulk(number: u16) -> TcHandle {
    TcHandle { major: MAJOR, minor: FIRST_BULK + (number << PRIORITY_BITS) }
}

fn waiting_at_most(rate: BitRate) -> u32 {
    let packets = LONGEST_WAIT.as_nanos() / rate.time_to_send(FRAME).as_nanos().max(1);
    packets.max(FEWEST_WAITING).try_into().unwrap_or(u32::MAX)
}

/// `struct tc_htb_glob`: the version of this interface, an unused divisor, and the class of what has
/// no priority of ours.
fn htb() -> Vec<u8> {
    let numbers = [3, 1, URGENT.minor.into(), 0, 0_u32];
    to_bytes(&[DefaultNla::new(INIT, numbers.into_iter().flat_map(u32::to_ne_bytes).collect())])
}

/// `struct tc_htb_opt`, and rates that it has no room for; in bytes per second.
fn class(guaranteed: u64, most: u64, priority: u32) -> Vec<DefaultNla> {
    let mut parameters = [ratespec(guaranteed), ratespec(most)].concat();
    let numbers = [burst(guaranteed), burst(most), turn(most), 0, priority];
    parameters.extend(numbers.into_iter().flat_map(u32::to_ne_bytes));
    let options = [
        DefaultNla::new(PARMS, parameters),
        DefaultNla::new(RATE64, guaranteed.to_ne_bytes().to_vec()),
        DefaultNla::new(CEIL64, most.to_ne_bytes().to_vec()),
    ];
    attributes("htb", to_bytes(&options))
}

/// `struct tc_ratespec`. That the link is Ethernet (1) spares a table that kernels no longer use.
fn ratespec(rate: u64) -> Vec<u8> {
    let mut spec = vec![0, 1, 0, 0, 0, 0, 0, 0];
    spec.extend(u32::try_from(rate).unwrap_or(u32::MAX).to_ne_bytes());
    spec
}

/// In bytes, as is the rate.
fn turn(rate: u64) -> u32 {
    let bytes = u128::from(rate) * u128::from(TURN.as_nanos()) / 1_000_000_000;
    bytes.clamp(LEAST_TURN.into(), LARGEST_TURN.into()) as u32
}

/// How long a class may send at once after it was idle: a frame, and what a late timer missed.
fn burst(rate: u64) -> u32 {
    let span = BitRate::from_bps(rate * 8).time_to_send(FRAME).as_nanos() + LATEST.as_nanos();
    (span / TICK_NS).try_into().unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_wait_grows_with_the_rate() {
        assert_eq!(waiting_at_most(BitRate::from_mbps(1)), 32);
        assert_eq!(waiting_at_most(BitRate::from_mbps(10)), 82);
        assert_eq!(waiting_at_most(BitRate::from_mbps(1000)), 8256);
    }

    #[test]
    fn a_burst_is_a_frame_and_what_a_late_timer_missed() {
        let ns = |mbps: u64| u64::from(burst(mbps * 125_000)) * TICK_NS;
        assert_eq!(ns(10) / 1000, 3211);
        assert!(ns(10_000) - LATEST.as_nanos() < 2000);
    }

    #[test]
    fn bulk_classes_are_what_the_program_spreads_flows_over() {
        assert!(BULK_CLASSES.is_power_of_two());
        let (urgent, first, spread) = priorities();
        assert_eq!((urgent, first, spread), (0x50c0_0006, 0x50c0_0012, 15));
        assert_eq!(u32::from(bulk(BULK_CLASSES - 1)), first + (spread << PRIORITY_BITS));
    }

    #[test]
    fn a_queue_below_reads_the_same_bands_from_the_classes_priorities() {
        let read = |priority: u32| priority & 15;
        assert_eq!(read(URGENT.into()), INTERACTIVE);
        for number in 0..BULK_CLASSES {
            assert_eq!(read(bulk(number).into()), BACKGROUND);
        }
    }
}
