//! Detects packets that leave through the device without passing the queue.
//!
//! Flowtables, VLAN devices above the device, bridges, packet sockets and offloads send past the
//! packet filter: the router would silently shape nothing. The device's own counter shows it.

use std::fs;

use freshline_core::unit::{BitRate, Bytes, Span, Time};

/// Compares the bytes that a device has sent with the bytes that have passed the queue, and reports
/// a difference once.
#[derive(Debug)]
pub(super) struct Bypass {
    /// The time of the next comparison; `None` after a difference is reported.
    next: Option<Time>,
    last: Option<Counts>,
    /// The number of consecutive intervals with unexplained traffic.
    suspicious: u32,
    /// The bytes sent in these intervals without passing the queue.
    unseen: Bytes,
    /// The bytes that passed the queue in these intervals.
    passed: Bytes,
    over: Span,
}

/// Counters since an arbitrary time.
#[derive(Debug, Clone, Copy)]
struct Counts {
    at: Time,
    sent: Bytes,
    passed: Bytes,
}

/// The traffic that bypasses the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bypassed {
    /// Sent by the device, without having passed the queue.
    pub(super) unseen: BitRate,
    /// Passed by the queue.
    pub(super) passed: BitRate,
}

impl Default for Bypass {
    fn default() -> Self {
        let (unseen, passed, over) = (Bytes::ZERO, Bytes::ZERO, Span::ZERO);
        Self { next: Some(Time::ZERO), last: None, suspicious: 0, unseen, passed, over }
    }
}

impl Bypass {
    /// The time between two comparisons.
    const INTERVAL: Span = Span::from_secs(1);
    /// The number of consecutive intervals before a report. By then, the device's own queue at
    /// start-up has drained.
    const PATIENCE: u32 = 10;
    /// The fraction of the shaped rate that may bypass the queue without a report, 1/20: ARP,
    /// neighbour discovery.
    const SHARE: u64 = 20;
    /// The same for slow links, in bytes per second.
    const FEW: u64 = 2000;

    /// When to compare next; `None` after a difference is reported.
    pub(super) fn next(&self) -> Option<Time> {
        self.next
    }

    /// Postpones the comparison: there is nothing to compare now.
    pub(super) fn postpone(&mut self, now: Time) {
        *self = Self { next: Some(now + Self::INTERVAL), ..Self::default() };
    }

    /// Notes how many bytes the device has `sent` and how many have `passed` the queue, each since
    /// an arbitrary time, with the link shaped to `rate`. Returns the bypassing traffic if it
    /// persists.
    pub(super) fn check(
        &mut self,
        now: Time,
        sent: Bytes,
        passed: Bytes,
        rate: BitRate,
    ) -> Option<Bypassed> {
        self.next = Some(now + Self::INTERVAL);
        let last = self.last.replace(Counts { at: now, sent, passed })?;
        let over = now.since(last.at);
        let passed = passed - last.passed;
        // The counter restarts with a new device of this name.
        let sent = sent.checked_sub(last.sent).unwrap_or(Bytes::ZERO);
        // A device counts link-layer headers, which are at most as long as the smallest packets,
        // and the headers of each segment of a super-packet.
        let unseen = sent.checked_sub(passed + passed).unwrap_or(Bytes::ZERO);
        let negligible = (rate.as_bps() / 8 / Self::SHARE).max(Self::FEW);
        if bytes_per_s(unseen, over) <= negligible {
            *self = Self { next: self.next, last: self.last, ..Self::default() };
            return None;
        }
        self.suspicious += 1;
        self.over += over;
        self.unseen += unseen;
        self.passed += passed;
        if self.suspicious < Self::PATIENCE {
            return None;
        }
        self.next = None;
        let rate = |bytes| BitRate::from_bps(bytes_per_s(bytes, self.over).saturating_mul(8));
        Some(Bypassed { unseen: rate(self.unseen), passed: rate(self.passed) })
    }
}

fn bytes_per_s(bytes: Bytes, over: Span) -> u64 {
    let per_s = u128::from(bytes.get()) * 1_000_000_000 / u128::from(over.as_nanos().max(1));
    u64::try_from(per_s).unwrap_or(u64::MAX)
}

/// The number of bytes that a device of this thread's network namespace has sent.
pub(super) fn sent_by(device: &str) -> Option<Bytes> {
    // /sys belongs to the namespace that mounted it.
    let devices = fs::read_to_string("/proc/thread-self/net/dev").ok()?;
    sent_in(&devices, device)
}

/// The same from a table of devices (`/proc/net/dev`).
fn sent_in(devices: &str, device: &str) -> Option<Bytes> {
    let (_, counts) = devices
        .lines()
        .filter_map(|line| line.trim_start().rsplit_once(": "))
        .find(|(name, _)| *name == device)?;
    // Skips the eight receive columns; the first transmit column counts bytes.
    counts.split_whitespace().nth(8)?.parse().ok().map(Bytes::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes per second that the device sends and that the queue passes, from the start on; returns
    /// the report, and after how many seconds it was made.
    fn reported(seconds: &[(u64, u64)]) -> Option<(u64, Bypassed)> {
        let mut bypass = Bypass::default();
        let (mut sent, mut passed) = (Bytes::new(5_000_000_000), Bytes::ZERO);
        for (n, (more_sent, more_passed)) in (0..).zip(seconds) {
            let now = Time::ZERO + Span::from_secs(1) * n;
            assert!(bypass.next().is_some_and(|next| next <= now));
            // 20 Mbit/s are 2,500,000 bytes per second.
            let found = bypass.check(now, sent, passed, BitRate::from_mbps(20));
            if let Some(found) = found {
                assert_eq!(bypass.next(), None, "reported once");
                return Some((n, found));
            }
            sent += Bytes::new(*more_sent);
            passed += Bytes::new(*more_passed);
        }
        None
    }

    #[test]
    fn a_device_that_sends_past_the_queue_is_reported_after_ten_seconds() {
        let bypassed = |unseen, passed| Bypassed {
            unseen: BitRate::from_bps(unseen),
            passed: BitRate::from_bps(passed),
        };
        // No packet passes the queue.
        assert_eq!(reported(&[(1_250_000, 0); 20]), Some((10, bypassed(10_000_000, 0))));
        // Only the first packets of a flowtable's connections pass the queue.
        let flowtable = [(2_500_000, 2000); 20];
        assert_eq!(reported(&flowtable), Some((10, bypassed(19_968_000, 16_000))));
        // After a quiet start.
        let later = [&[(0, 0); 30][..], &[(1_250_000, 0); 20]].concat();
        assert_eq!(reported(&later), Some((40, bypassed(10_000_000, 0))));
    }

    #[test]
    fn what_devices_send_besides_is_not_reported() {
        // Link-layer headers of the smallest packets, and of the segments of super-packets.
        assert_eq!(reported(&[(2_500_000 * 60 / 40, 2_500_000); 60]), None);
        // ARP, neighbour discovery and a few others.
        assert_eq!(reported(&[(100_000, 0); 60]), None);
        // The device's own queue from before the router started.
        let drains = [&[(1_000_000, 0); 9][..], &[(0, 0); 50]].concat();
        assert_eq!(reported(&drains), None);
        // Bursts, after which packets pass the queue again.
        let bursts = [[(1_000_000, 0); 9], [(1_000_000, 1_000_000); 9]].concat().repeat(3);
        assert_eq!(reported(&bursts), None);
        // A restarted counter.
        let mut bypass = Bypass::default();
        for n in 0..20 {
            let now = Time::ZERO + Span::from_secs(1) * n;
            let sent = Bytes::new(1_000_000_000 - 10_000_000 * n);
            assert_eq!(bypass.check(now, sent, Bytes::ZERO, BitRate::from_mbps(20)), None);
        }
    }

    #[test]
    fn the_bytes_sent_are_read_from_the_table_of_devices() {
        let table = "Inter-|   Receive  |  Transmit\n face |bytes packets|bytes packets\n\
             \x20 eth0: 1 2 3 4 5 6 7 8 900 10 11 12 13 14 15 16\n\
             eth0.5: 1 2 3 4 5 6 7 8 901 10 11 12 13 14 15 16\n";
        assert_eq!(sent_in(table, "eth0"), Some(Bytes::new(900)));
        assert_eq!(sent_in(table, "eth0.5"), Some(Bytes::new(901)));
        assert_eq!(sent_in(table, "eth"), None);
        assert!(sent_by("lo").is_some());
    }
}
