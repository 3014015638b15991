//! Departure times of packets from their device, as stamped by the kernel: `SO_TIMESTAMPING` with
//! `TX_SOFTWARE`, read from the socket's error queue.
//!
//! ```text
//!   sendmsg ─► queueing discipline ─► driver: stamp (wall clock, number of the call) ─► error queue
//!                                                                                          │
//!   delay W = stamp − sending, of each packet of that call ◄───────────────────────────────┘
//! ```
//!
//! # Where the kernel gives no information
//!
//! - **A train** (GSO) is one call with one stamp, that of its first segment if the kernel segments
//!   it before the driver. The stamp counts for all of its packets: a train is at most as long as
//!   half a millisecond of the path's rate.
//! - **The entry into the discipline** (`TX_SCHED`) is not requested: RTT − W is the time from the
//!   departure to the ack, for any cause of the packet's delay before.
//! - **Numbers** are counted by the kernel from 0, per call, and wrap. Whether a failed call was
//!   counted depends on the kernel (a call that would block: not from Linux 6.9 on). So after a
//!   failed call no stamps are requested until the stamps of all earlier calls are read or too old,
//!   and then the numbers start at 0 again. The same happens if a number shows that the counts
//!   differ.
//! - **The wall clock** may be set: then the stamps of all packets that were sent before are
//!   discarded. Slower drifts are followed ([`Anchor`]).
//! - **A driver without stamps** causes no error; its packets keep the estimated queueing delay.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

use freshline_core::path::{MAX_STAMPED_WAIT, stamped_wait};
use freshline_core::unit::{Span, Time};
use mio::net::UdpSocket;
use nix::cmsg_space;
use nix::libc::{sock_extended_err, sockaddr_in6};
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, MultiHeaders, TimestampingFlag, recvmmsg, setsockopt,
    sockopt::Timestamping,
};
use nix::sys::time::TimeSpec;

use crate::clock::{Anchor, Clock};

/// Maximum stamps per system call, and maximum system calls per turn.
const BATCH: usize = 32;
const BATCHES: usize = 8;

/// The maximum number of calls without a stamp; beyond it, the oldest are forgotten.
const MAX_CALLS: usize = 1 << 12;

/// A jump of the wall clock by more than this is not a drift.
const STEP: Span = Span::from_millis(1);

/// `SCM_TSTAMP_SND` of <linux/errqueue.h>: the stamp of the driver; `SO_EE_ORIGIN_TIMESTAMPING`.
const BY_DRIVER: u32 = 0;
const ORIGIN: u8 = 4;

/// A call that awaits its stamp.
#[derive(Debug)]
struct Call<P> {
    at: Time,
    /// Each with its send time; empty as soon as a stamp would be meaningless.
    packets: Vec<(Time, P)>,
    is_stamped: bool,
}

/// A stamp of the kernel: the number of a call, and the departure time of its packet by the wall
/// clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    number: u32,
    left: Duration,
}

/// The calls of one socket that await stamps; `P` identifies a packet.
#[derive(Debug)]
pub(crate) struct Departures<P> {
    clock: Clock,
    anchor: Anchor,
    /// Whether stamps are requested, and the number of the next call is known.
    is_on: bool,
    /// The number of the first call in `calls`.
    first: u32,
    calls: VecDeque<Call<P>>,
}

impl<P> Departures<P> {
    pub(crate) fn new(clock: Clock) -> Self {
        let anchor = Anchor::of_now(clock);
        Self { clock, anchor, is_on: false, first: 0, calls: VecDeque::new() }
    }

    /// The clock by which packets are sent.
    pub(crate) fn clock(&self) -> Clock {
        self.clock
    }

    /// Requests stamps for the calls from now on, unless they are requested already or earlier
    /// stamps can still arrive.
    pub(crate) fn prepare(&mut self, socket: &UdpSocket) {
        if self.is_on {
            return;
        }
        self.prune(self.clock.now());
        if !self.calls.is_empty() {
            return;
        }
        // Stamps that arrived too late.
        for _ in 0..BATCHES {
            if read(socket).is_ok_and(|stamps| stamps.is_empty()) {
                self.first = 0;
                self.is_on = ask(socket, true).is_ok();
                return;
            }
        }
    }

    /// A call has sent these packets, each at its time; packets whose departure is not needed are
    /// left out.
    pub(crate) fn on_sent(&mut self, packets: Vec<(Time, P)>) {
        if !self.is_on {
            return;
        }
        if self.calls.len() == MAX_CALLS {
            self.calls.pop_front();
            self.first = self.first.wrapping_add(1);
        }
        self.calls.push_back(Call { at: self.clock.now(), packets, is_stamped: false });
    }

    /// The number of the next call has become unknown.
    pub(crate) fn on_doubt(&mut self, socket: &UdpSocket) {
        if self.is_on {
            let _ = ask(socket, false);
            self.is_on = false;
        }
    }

    /// Reads the available stamps: `on_left` gets each packet, and how long after its sending it
    /// left the device.
    pub(crate) fn read(&mut self, socket: &UdpSocket, mut on_left: impl FnMut(P, Span)) {
        for _ in 0..BATCHES {
            if self.calls.is_empty() {
                return;
            }
            let Ok(stamps) = read(socket) else { return };
            if stamps.is_empty() {
                return;
            }
            if !self.take(&stamps, Anchor::of_now(self.clock), &mut on_left) {
                self.on_doubt(socket);
            }
            if stamps.len() < BATCH {
                return;
            }
        }
    }

    /// Processes stamps that were read at `anchor`; returns whether the kernel's count of calls
    /// agrees.
    fn take(
        &mut self,
        stamps: &[Stamp],
        anchor: Anchor,
        on_left: &mut impl FnMut(P, Span),
    ) -> bool {
        let now = anchor.ours();
        if self.anchor.follow(anchor) > STEP {
            self.forget();
        }
        let mut is_same = true;
        for stamp in stamps {
            let at = stamp.number.wrapping_sub(self.first);
            if at > u32::MAX / 2 {
                // Too old: its call is forgotten.
                continue;
            }
            let Some(call) = self.calls.get_mut(at as usize) else {
                is_same = false;
                self.forget();
                break;
            };
            call.is_stamped = true;
            let left = self.anchor.time_of(stamp.left);
            let is_possible = stamped_wait(call.at, left, now).is_some();
            for (sent_at, packet) in call.packets.drain(..).filter(|_| is_possible) {
                if let Some(wait) = stamped_wait(sent_at, left, now) {
                    on_left(packet, wait);
                }
            }
        }
        self.prune(now);
        is_same
    }

    /// Discards the pending stamps of all calls so far.
    fn forget(&mut self) {
        self.calls.iter_mut().for_each(|call| call.packets.clear());
    }

    /// Removes calls from the oldest on, while they are stamped or too old.
    fn prune(&mut self, now: Time) {
        while let Some(call) = self.calls.front()
            && (call.is_stamped || now.since(call.at) > MAX_STAMPED_WAIT)
        {
            self.calls.pop_front();
            self.first = self.first.wrapping_add(1);
        }
    }
}

/// Starts or stops the stamping of departures; numbers start at 0 each time. Stamps made before can
/// still be read.
fn ask(socket: &UdpSocket, is_on: bool) -> nix::Result<()> {
    let mut flags = TimestampingFlag::SOF_TIMESTAMPING_SOFTWARE;
    if is_on {
        flags |= TimestampingFlag::SOF_TIMESTAMPING_TX_SOFTWARE
            | TimestampingFlag::SOF_TIMESTAMPING_OPT_ID
            | TimestampingFlag::SOF_TIMESTAMPING_OPT_TSONLY;
    }
    setsockopt(socket, Timestamping, &flags)
}

/// Reads up to [`BATCH`] stamps from the error queue; other messages are dropped.
fn read(socket: &UdpSocket) -> io::Result<Vec<Stamp>> {
    let control = cmsg_space!([TimeSpec; 3], sock_extended_err, sockaddr_in6);
    let mut headers = MultiHeaders::<()>::preallocate(BATCH, Some(control));
    let mut nothing: [[io::IoSliceMut<'_>; 0]; BATCH] = [const { [] }; BATCH];
    let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
    let received = match recvmmsg(socket.as_raw_fd(), &mut headers, nothing.iter_mut(), flags, None)
    {
        Ok(received) => received,
        Err(nix::errno::Errno::EAGAIN) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let stamp_of = |messages: &mut dyn Iterator<Item = ControlMessageOwned>| {
        let (mut number, mut left) = (None, None);
        for message in messages {
            match message {
                ControlMessageOwned::ScmTimestampsns(stamps) => left = Some(stamps.system),
                ControlMessageOwned::Ipv4RecvErr(error, _)
                | ControlMessageOwned::Ipv6RecvErr(error, _)
                    if (error.ee_origin, error.ee_info) == (ORIGIN, BY_DRIVER) =>
                {
                    number = Some(error.ee_data);
                }
                _ => {}
            }
        }
        Some(Stamp { number: number?, left: left?.into() })
    };
    Ok(received.filter_map(|message| stamp_of(&mut message.cmsgs().ok()?)).collect())
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    use super::*;

    /// Departures with stamps requested, without a socket.
    fn counted(first: u32) -> Departures<u64> {
        Departures { is_on: true, first, ..Departures::new(Clock::new()) }
    }

    /// One call with these packets.
    fn send(departures: &mut Departures<u64>, numbers: impl IntoIterator<Item = u64>) {
        let now = departures.clock.now();
        departures.on_sent(numbers.into_iter().map(|number| (now, number)).collect());
    }

    /// The packets that get a queueing delay from these stamps, and whether the kernel's count of
    /// calls agrees.
    fn take(departures: &mut Departures<u64>, stamps: &[Stamp]) -> (Vec<u64>, bool) {
        let mut left = Vec::new();
        let anchor = Anchor::of_now(departures.clock);
        let is_same = departures.take(stamps, anchor, &mut |number, wait| {
            assert!(wait < Span::from_secs(2));
            left.push(number);
        });
        (left, is_same)
    }

    /// A stamp of now.
    fn stamp(number: u32) -> Stamp {
        Stamp { number, left: crate::clock::wall_clock() }
    }

    #[test]
    fn the_stamp_of_a_call_is_that_of_all_its_packets_also_where_numbers_wrap() {
        let mut departures = counted(u32::MAX);
        send(&mut departures, [0, 1]);
        send(&mut departures, [2]);
        // The first one may have been dropped; an older one is not known.
        let stamps = [stamp(0), stamp(u32::MAX - 5)];
        assert_eq!(take(&mut departures, &stamps), (vec![2], true));
        assert_eq!(take(&mut departures, &[stamp(u32::MAX)]), (vec![0, 1], true));
        assert_eq!((departures.first, departures.calls.len()), (1, 0));
    }

    #[test]
    fn a_number_that_was_not_sent_and_a_stamp_before_the_sending_give_no_wait() {
        let mut departures = counted(0);
        let early =
            Stamp { number: 0, left: crate::clock::wall_clock() - Duration::from_millis(9) };
        send(&mut departures, [0]);
        send(&mut departures, [1]);
        assert_eq!(take(&mut departures, &[early]), (vec![], true));
        assert_eq!(take(&mut departures, &[stamp(7), stamp(1)]), (vec![], false));
    }

    #[test]
    fn a_step_of_the_wall_clock_gives_no_wait_to_packets_sent_before() {
        let mut departures = counted(0);
        send(&mut departures, [0]);
        // Until now the wall clock was 100 ms behind: the stamp is in the new time.
        let anchor = Anchor::of_now(departures.clock);
        departures.anchor = anchor.with_wall_behind(Duration::from_millis(100));
        assert_eq!(take(&mut departures, &[stamp(0)]), (vec![], true));
        send(&mut departures, [1]);
        assert_eq!(take(&mut departures, &[stamp(1)]), (vec![1], true));
    }

    #[test]
    fn memory_is_bounded_where_no_stamps_come() {
        let mut departures = counted(0);
        (0..=MAX_CALLS as u64).for_each(|number| send(&mut departures, [number]));
        assert_eq!((departures.calls.len(), departures.first), (MAX_CALLS, 1));
        departures.prune(departures.clock.now() + MAX_STAMPED_WAIT + Span::from_millis(1));
        assert_eq!(departures.calls.len(), 0);
    }

    /// The loopback device stamps at once, within the call.
    #[test]
    fn stamps_come_from_the_kernel_in_both_families_and_again_after_a_failed_call() {
        for ip in [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
            let far = std::net::UdpSocket::bind((ip, 0)).unwrap();
            let socket = UdpSocket::bind((ip, 0).into()).unwrap();
            let mut departures = Departures::new(Clock::new());
            let sent = |departures: &mut Departures<u64>, number| {
                departures.prepare(&socket);
                let now = departures.clock.now();
                socket.send_to(&[7; 100], far.local_addr().unwrap()).unwrap();
                departures.on_sent(vec![(now, number)]);
            };
            let left = |departures: &mut Departures<u64>| {
                let mut left = Vec::new();
                departures.read(&socket, |number, _| left.push(number));
                left
            };
            (0..100).for_each(|number| sent(&mut departures, number));
            let all = left(&mut departures);
            // On a busy machine the readings of both clocks are delayed, so a stamp may be useless.
            assert!(all.len() > 80 && all.is_sorted(), "{all:?}");
            sent(&mut departures, 100);
            departures.on_doubt(&socket);
            sent(&mut departures, 101);
            assert_eq!(departures.calls.len(), 1, "earlier stamps are to come first");
            assert_eq!(left(&mut departures), [100]);
            sent(&mut departures, 102);
            assert_eq!((left(&mut departures), departures.first), (vec![102], 1));
        }
    }
}
