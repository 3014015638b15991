//! A shaper with separate bands, for devices whose own queue has none.
//!
//! ```text
//!  HTB ── link: rate ─┬─ urgent: guaranteed all of it ────► TBF ─ pfifo
//!                     ├─ batched 0 … 15: lent, first ─────► TBF ─ pfifo, each
//!                     ├─ bulk 0 … 15: lent, last ─────────► TBF ─ pfifo, each
//!                     └─ oversize: guaranteed all of it ──► pfifo
//! ```
//!
//! HTB serves classes within their guarantee first. The urgent class always is, and the other
//! classes borrow the rest of the rate from the link's class, the batched ones before the bulk
//! ones: strict priority. The classes of a band take turns (deficit round robin), so that uploads
//! in different classes share evenly.
//!
//! # Super-packets
//!
//! HTB sends a packet as a whole, and a super-packet of UDP (GSO) or of TCP (TSO) of 64 kB occupies
//! a link of 2 Mbit/s for 262 ms. The limits of a device (`gso_max_size`) and its offloads do not
//! help: the kernel applies them behind the queueing discipline, and UDP ignores them. A TBF
//! segments a super-packet that is larger than its burst when it enqueues it. Its rate is so high
//! that it adds no delay: it only splits, so that an urgent packet waits for at most [`MAX_PIECE`],
//! or for one packet.
//!
//! TBF drops packets larger than its burst that are not super-packets. They exist only if the MTU
//! of the device grows after `attach`; the program then chooses the oversize class for them.
//!
//! Without the program all packets are urgent: a shaper without bands.

use freshline_core::unit::{BitRate, Bytes, Packets, Span};
use freshline_system::netlink::{Handle, NetlinkError, Qdisc, Route, encode};
use nix::errno::Errno;

use super::{BACKGROUND, BEST_EFFORT, Band, INTERACTIVE, Priorities};
use crate::device::Device;
use crate::error::KernelError;

/// The major number that identifies this project's HTB.
const MAJOR: u16 = 0x50c0;
const ROOT: Handle = Handle { major: MAJOR, minor: 0 };
const LINK: Handle = Handle { major: MAJOR, minor: 1 };
/// The number of a class is the priority of its packets. Queues of lower devices use its last bits
/// ([`PRIORITY_BITS`]), which are the same as without a shaper.
const URGENT: Handle = Handle { major: MAJOR, minor: INTERACTIVE as u16 };
const OVERSIZE: Handle = Handle { major: MAJOR, minor: 1 << PRIORITY_BITS | INTERACTIVE as u16 };
const FIRST_BATCHED: u16 = 1 << PRIORITY_BITS | BEST_EFFORT as u16;
const FIRST_BULK: u16 = 1 << PRIORITY_BITS | BACKGROUND as u16;

/// `TC_PRIO_MAX` of <linux/pkt_sched.h> in bits, as in `intf.h`.
const PRIORITY_BITS: u16 = 4;

/// The number of batched classes, and of bulk classes: hosts seldom have more uploads, and it is a
/// power of two.
const CLASSES: u16 = 16;

/// An Ethernet frame.
const FRAME: Bytes = Bytes::new(1514);

/// The maximum lateness of the kernel's timer at which the link does not become idle: a timer of
/// the scheduler, on a busy processor.
const LATEST: Span = Span::from_millis(2);

/// How long a class sends before it is another one's turn. HTB serves packets evenly by their bytes
/// only if they are no larger than a turn.
const TURN: Span = Span::from_millis(2);
const MIN_TURN: u64 = 2 * FRAME.get();
/// TCP's largest packet by default (`GSO_MAX_SIZE`).
const LARGEST_TURN: u64 = 1 << 16;

/// A super-packet is split if the link needs longer than this for it, or than for one packet of the
/// device's MTU.
const MAX_PIECE: Span = Span::from_millis(1);
/// The maximum length of the headers of a packet or a segment (`HEADERS` of `intf.h`).
const HEADERS: u32 = 128;
/// The rate of the splitters, in bytes per second, above that of any link: 1 Tbit/s.
const SPLITTER_RATE: u64 = 125_000_000_000;

/// The maximum queueing delay of a class at the full rate, and the minimum limit in packets. TCP
/// keeps its own packets in the kernel's queues far below that (TCP small queues); the limit is for
/// all other packets.
const MAX_WAIT: Span = Span::from_millis(100);
const FEWEST_URGENT: u64 = 32;
/// All segments of the largest super-packet (`UDP_MAX_SEGMENTS`).
const FEWEST_SEGMENTS: u64 = 128;

/// The value that HTB treats as no guarantee, in bytes per second.
const NOTHING: u64 = 1;

/// HTB counts in units of 64 ns.
const TICK_NS: u64 = 64;

/// Numbers of HTB's attributes (`TCA_HTB_*` of <linux/pkt_sched.h>).
const PARMS: u16 = 1;
const INIT: u16 = 2;
const RATE64: u16 = 6;
const CEIL64: u16 = 7;
/// And of TBF's (`TCA_TBF_*`).
const TBF_PARMS: u16 = 1;
const TBF_RATE64: u16 = 4;
const TBF_BURST: u16 = 6;

/// Priorities of a band are `1 << PRIORITY_BITS` apart.
pub(super) fn priorities() -> Priorities {
    Priorities {
        urgent: URGENT.into(),
        batched: class(FIRST_BATCHED, 0).into(),
        bulk: class(FIRST_BULK, 0).into(),
        spread: u32::from(CLASSES) - 1,
        oversize: OVERSIZE.into(),
    }
}

/// The largest packet that is sent as a whole, in bytes with its headers.
pub(super) fn largest(rate: BitRate, mtu: u32) -> u32 {
    let piece = in_span(rate.as_bps() / 8, MAX_PIECE);
    u32::try_from(piece).unwrap_or(u32::MAX).max(mtu.saturating_add(HEADERS))
}

/// Replaces the root by the shaper; packets queued at the root are lost. Super-packets of more than
/// `largest` bytes are split.
pub(super) fn shape(
    route: &mut Route,
    device: &Device,
    rate: BitRate,
    largest: u32,
) -> Result<(), KernelError> {
    build(route, device.index, rate, largest).map_err(|error| match error.errno() {
        Some(errno) if errno == Errno::ENOENT as i32 => KernelError::Missing {
            feature: "the queueing disciplines HTB and TBF",
            remedy: "`modprobe sch_htb sch_tbf`, or take one that is built with CONFIG_NET_SCH_HTB \
                     and CONFIG_NET_SCH_TBF",
        },
        _ => KernelError::device("shape", &device.name)(error),
    })
}

fn build(route: &mut Route, device: u32, rate: BitRate, largest: u32) -> Result<(), NetlinkError> {
    let all = rate.as_bps() / 8;
    let fifo = |route: &mut Route, parent, fewest| {
        let settings = Qdisc::settings("pfifo", &limit(rate, fewest).to_ne_bytes());
        route.put_qdisc(device, parent, Handle::UNSPEC, &settings)
    };
    route.put_qdisc(device, Handle::ROOT, ROOT, &Qdisc::settings("htb", &htb()))?;
    route.add_class(device, ROOT, LINK, &htb_class(all, all, 0))?;
    route.add_class(device, LINK, OVERSIZE, &htb_class(all, all, 0))?;
    fifo(route, OVERSIZE, FEWEST_URGENT)?;
    let urgent = [(URGENT, all, 0, FEWEST_URGENT)].into_iter();
    let batched = (0..CLASSES).map(|at| (class(FIRST_BATCHED, at), NOTHING, 1, FEWEST_SEGMENTS));
    let bulk = (0..CLASSES).map(|at| (class(FIRST_BULK, at), NOTHING, 2, FEWEST_SEGMENTS));
    for (splitter, (leaf, guaranteed, priority, fewest)) in
        (MAJOR + 1..).zip(urgent.chain(batched).chain(bulk))
    {
        route.add_class(device, LINK, leaf, &htb_class(guaranteed, all, priority))?;
        let tbf = Handle { major: splitter, minor: 0 };
        route.put_qdisc(device, leaf, tbf, &Qdisc::settings("tbf", &tbf_options(largest)))?;
        fifo(route, Handle { minor: 1, ..tbf }, fewest)?;
    }
    Ok(())
}

/// Whether this is the root of this project's shaper.
pub(super) fn is_ours(qdisc: &Qdisc) -> bool {
    qdisc.parent == Handle::ROOT && qdisc.handle == ROOT && qdisc.kind == "htb"
}

/// The queued bytes of a band, and the packets that it dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct BandQueue {
    pub(super) bytes: Bytes,
    pub(super) drops: Packets,
}

/// The queues of each band; `None` if the root is not this shaper.
pub(super) fn bands(
    route: &mut Route,
    device: u32,
) -> Result<Option<[BandQueue; 3]>, NetlinkError> {
    let all = route.qdiscs(device)?;
    if !all.iter().any(is_ours) {
        return Ok(None);
    }
    let mut bands = [BandQueue::default(); 3];
    // The disciplines directly below the classes: the drop counter of a class itself does not
    // include segments.
    for leaf in all.iter().filter(|one| one.parent.major == MAJOR) {
        let stats = leaf.stats.unwrap_or_default();
        let band = &mut bands[band(leaf.parent) as usize];
        band.bytes += Bytes::new(stats.queued_bytes.into());
        band.drops += Packets::new(stats.drops.into());
    }
    Ok(Some(bands))
}

/// A class of the band that begins with the class `first`.
fn class(first: u16, number: u16) -> Handle {
    Handle { major: MAJOR, minor: first + (number << PRIORITY_BITS) }
}

fn band(class: Handle) -> Band {
    match u32::from(class.minor) & ((1 << PRIORITY_BITS) - 1) {
        BEST_EFFORT => Band::Batched,
        BACKGROUND => Band::Bulk,
        _ => Band::Urgent,
    }
}

/// A limit in packets.
fn limit(rate: BitRate, fewest: u64) -> u32 {
    let packets = MAX_WAIT.as_nanos() / rate.time_to_send(FRAME).as_nanos().max(1);
    packets.max(fewest).try_into().unwrap_or(u32::MAX)
}

/// `struct tc_htb_glob`: the version of this interface, an unused divisor, and the class of packets
/// without a priority of this program.
fn htb() -> Vec<u8> {
    let numbers = [3, 1, URGENT.minor.into(), 0, 0_u32];
    encode(|put| _ = put.put(INIT, &numbers.map(u32::to_ne_bytes).concat()))
}

/// `struct tc_htb_opt`, and rates that do not fit into it; in bytes per second.
fn htb_class(guaranteed: u64, most: u64, priority: u32) -> Vec<u8> {
    let mut parameters = [ratespec(guaranteed), ratespec(most)].concat();
    let numbers = [burst(guaranteed), burst(most), turn(most), 0, priority];
    parameters.extend(numbers.into_iter().flat_map(u32::to_ne_bytes));
    let options = encode(|put| {
        put.put(PARMS, &parameters);
        put.put(RATE64, &guaranteed.to_ne_bytes()).put(CEIL64, &most.to_ne_bytes());
    });
    Qdisc::settings("htb", &options)
}

/// `struct tc_tbf_qopt` without a peak rate, and without a limit: the queue is attached below it
/// afterwards.
fn tbf_options(burst: u32) -> Vec<u8> {
    let mut parameters = [ratespec(SPLITTER_RATE), vec![0; 12]].concat();
    // Without a limit, the size of the buffer in ticks, and a minimum size.
    parameters.extend([0_u32; 3].into_iter().flat_map(u32::to_ne_bytes));
    encode(|put| {
        put.put(TBF_PARMS, &parameters);
        put.put(TBF_RATE64, &SPLITTER_RATE.to_ne_bytes()).put(TBF_BURST, &burst.to_ne_bytes());
    })
}

/// `struct tc_ratespec`. Link type Ethernet (1) avoids a table that kernels no longer use.
fn ratespec(rate: u64) -> Vec<u8> {
    let mut spec = vec![0, 1, 0, 0, 0, 0, 0, 0];
    spec.extend(u32::try_from(rate).unwrap_or(u32::MAX).to_ne_bytes());
    spec
}

/// A turn in bytes, of a rate in bytes per second.
fn turn(rate: u64) -> u32 {
    in_span(rate, TURN).clamp(MIN_TURN.into(), LARGEST_TURN.into()) as u32
}

/// The bytes that a rate in bytes per second sends in a span.
fn in_span(rate: u64, span: Span) -> u128 {
    u128::from(rate) * u128::from(span.as_nanos()) / 1_000_000_000
}

/// The bytes that a class may send at once after it was idle: a frame, plus the bytes of a late
/// timer.
fn burst(rate: u64) -> u32 {
    let span = BitRate::from_bps(rate * 8).time_to_send(FRAME).as_nanos() + LATEST.as_nanos();
    (span / TICK_NS).try_into().unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_grow_with_the_rate() {
        assert_eq!(limit(BitRate::from_mbps(1), FEWEST_URGENT), 32);
        assert_eq!(limit(BitRate::from_mbps(10), FEWEST_URGENT), 82);
        assert_eq!(limit(BitRate::from_mbps(10), FEWEST_SEGMENTS), 128);
        assert_eq!(limit(BitRate::from_mbps(1000), FEWEST_SEGMENTS), 8256);
    }

    #[test]
    fn super_packets_are_split_to_a_packet_or_to_a_millisecond() {
        assert_eq!(largest(BitRate::from_mbps(1), 1500), 1628);
        assert_eq!(largest(BitRate::from_mbps(100), 1500), 12_500);
        assert_eq!(largest(BitRate::from_mbps(10), 9000), 9128);
        assert_eq!(largest(BitRate::from_mbps(1_000_000), u32::MAX), u32::MAX);
    }

    #[test]
    fn a_burst_is_a_frame_and_what_a_late_timer_missed() {
        let ns = |mbps: u64| u64::from(burst(mbps * 125_000)) * TICK_NS;
        assert_eq!(ns(10) / 1000, 3211);
        assert!(ns(10_000) - LATEST.as_nanos() < 2000);
    }

    #[test]
    fn bulk_classes_are_what_the_program_spreads_flows_over() {
        assert!(CLASSES.is_power_of_two());
        let Priorities { urgent, batched, bulk, spread, oversize } = priorities();
        assert_eq!((urgent, batched, bulk), (0x50c0_0006, 0x50c0_0010, 0x50c0_0012));
        assert_eq!((spread, oversize), (15, 0x50c0_0016));
        assert_eq!(u32::from(class(FIRST_BULK, CLASSES - 1)), bulk + (spread << PRIORITY_BITS));
    }

    #[test]
    fn a_queue_below_reads_the_same_bands_from_the_classes_priorities() {
        let read = |class: Handle| u32::from(class) & 15;
        assert_eq!([URGENT, OVERSIZE].map(read), [INTERACTIVE; 2]);
        assert_eq!([URGENT, OVERSIZE].map(band), [Band::Urgent; 2]);
        for number in 0..CLASSES {
            let [batched, bulk] = [FIRST_BATCHED, FIRST_BULK].map(|first| class(first, number));
            assert_eq!([batched, bulk].map(read), [BEST_EFFORT, BACKGROUND]);
            assert_eq!([batched, bulk].map(band), [Band::Batched, Band::Bulk]);
        }
    }
}
