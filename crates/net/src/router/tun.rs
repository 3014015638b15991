//! Packets that are routed into a TUN device created by the router, and come out of it again.
//!
//! ```text
//! kernel:  routes ─► device ─ ┐              ┌ ─► device ─► routes ─► the link
//!                             ▼              │
//! here:                    discipline ─► shaper
//! ```
//!
//! This mode needs no packet filter, but routes: the packets to shape are routed into the device,
//! and the packets that come out of it are routed to the link by another table. The kernel hands
//! over super-packets; they are segmented before they are queued, at any rate, and packets that
//! leave at the same time are joined again. The router holds whole packets here, so an AQM marks
//! the ECN-capable ones.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;

use freshline_core::router::{KernelDropsReport, Packet, UnshapedReport};
use freshline_core::unit::BitRate;
use freshline_system::netlink::Route;

use super::gate::{Arrived, Gate, Status, Ticket};
use super::{RouterError, system};
use crate::tun::{Device, IpPacket, Pool};

/// A device created by the router.
pub(super) struct TunGate {
    name: String,
    device: Device,
    pool: Pool,
    leaving: Vec<IpPacket>,
    is_closed: bool,
}

impl Ticket for IpPacket {
    fn mark(&mut self) -> bool {
        Packet::mark(self)
    }
}

impl TunGate {
    const MTU: u16 = 1500;
    /// The maximum number of packets sent at once.
    const BATCH: usize = 128;

    /// Creates the device, up and without addresses.
    pub(super) fn open(name: &str) -> Result<Self, RouterError> {
        if !Path::new("/dev/net/tun").exists() {
            return Err(RouterError::NeedsTun);
        }
        let device = Device::create(name).map_err(|source| match source.kind() {
            io::ErrorKind::ResourceBusy => RouterError::DeviceExists(name.to_owned()),
            _ => RouterError::System { action: "make a TUN device", source },
        })?;
        // Packets that come out of it have any source address, including this host's.
        for (setting, value) in [("accept_local", "1"), ("rp_filter", "0")] {
            // If the kernel refuses the setting, packets of this host do not pass; others do.
            let _ = fs::write(format!("/proc/sys/net/ipv4/conf/{name}/{setting}"), value);
        }
        Route::open()
            .map_err(io::Error::from)
            .and_then(|mut route| device.set_up(&mut route, &[], Self::MTU))
            .map_err(system("configure the TUN device"))?;
        Ok(Self {
            name: name.to_owned(),
            device,
            pool: Pool::new(Self::MTU),
            leaving: Vec::with_capacity(Self::BATCH),
            is_closed: false,
        })
    }

    /// The number of packets that the kernel dropped because they were not read.
    fn unread(&self) -> Option<u64> {
        // The table of this thread's network namespace; /sys belongs to the namespace that mounted
        // it.
        let devices = fs::read_to_string("/proc/thread-self/net/dev").ok()?;
        tx_dropped(&devices, &self.name)
    }
}

/// The packets that `device` dropped on transmission, from a table of devices (`/proc/net/dev`).
fn tx_dropped(devices: &str, device: &str) -> Option<u64> {
    let is_ours = |line: &&str| line.trim_start().split(':').next() == Some(device);
    let (_, counts) = devices.lines().find(is_ours)?.split_once(':')?;
    // Skips the eight receive columns; then bytes, packets, errors and drops on transmission.
    counts.split_whitespace().nth(11)?.parse().ok()
}

impl Gate for TunGate {
    type Ticket = IpPacket;

    fn receive(&mut self, into: &mut Vec<Arrived<IpPacket>>) -> io::Result<()> {
        if self.is_closed {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.device.read(&mut self.pool, |_, packet| {
            let (size, header) = (packet.size(), packet.header());
            into.push(Arrived { ticket: packet, size, header });
        })
    }

    fn pass(&mut self, ticket: IpPacket) -> io::Result<()> {
        self.leaving.push(ticket);
        if self.leaving.len() < Self::BATCH { Ok(()) } else { self.flush() }
    }

    fn discard(&mut self, ticket: IpPacket) {
        self.pool.recycle(ticket);
    }

    fn flush(&mut self) -> io::Result<()> {
        let written = match &mut self.leaving[..] {
            [] => Ok(()),
            leaving => self.device.write(leaving),
        };
        self.leaving.drain(..).for_each(|packet| self.pool.recycle(packet));
        written
    }

    fn set_rate(&mut self, _: BitRate) -> io::Result<()> {
        Ok(())
    }

    fn close(&mut self) {
        self.is_closed = true;
    }

    fn readable(&self) -> RawFd {
        self.device.as_raw_fd()
    }

    fn status(&self) -> Status {
        Status {
            super_packets: "segmented",
            limit: None,
            kernel_drops: KernelDropsReport {
                unread: self.unread().unwrap_or(0),
                ..KernelDropsReport::default()
            },
            // Routes lead into the device: no packet passes without the router.
            unshaped: UnshapedReport::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::tx_dropped;

    #[test]
    fn drops_are_read_from_the_table_of_devices() {
        let table = "\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo
    lo:     100       2    0    0    0     0          0         0      100       2    0    0    0
  tun1:       1       2    3    4    5     6          7         8        9      10   11   12   13
 tun10:1 2 3 4 5 6 7 8 9 10 11 99 13 14 15 16
";
        assert_eq!(tx_dropped(table, "tun1"), Some(12));
        assert_eq!(tx_dropped(table, "tun10"), Some(99));
        assert_eq!(tx_dropped(table, "tun2"), None);
        let devices = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
        assert!(tx_dropped(&devices, "lo").is_some(), "{devices}");
    }
}
