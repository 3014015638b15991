//! Congestion control of a connection's paths together: [`CoupledLaw`] as noq-proto's controller.
//!
//! ```text
//! ack:   slow start: w ← w + bytes; later: w ← w + bytes · increase(this path, all paths)
//! loss:  w ← max(w/2, 2 packets), at most once per round trip; persistent congestion: w ← 2 packets
//! ```
//!
//! One factory serves one connection: the paths that it makes controllers for share their windows,
//! round trips and losses. A path that is closed leaves with its last controller.

use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use freshline_core::path::{CoupledLaw, Share};
use noq_proto::RttEstimator;
use noq_proto::congestion::{Controller, ControllerFactory, ControllerMetrics};

/// The window of a new path, in packets (RFC 9002, section 7.2).
const INITIAL: u64 = 10;

/// The smallest window, in packets (RFC 9002, section 7.2).
const MIN: u64 = 2;

/// The paths of a connection; `None` marks the place of a path that was closed.
type Group = Arc<Mutex<Vec<Option<Share>>>>;

fn lock(group: &Group) -> MutexGuard<'_, Vec<Option<Share>>> {
    group.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes the controllers of one connection.
#[derive(Debug)]
pub(super) struct Coupling {
    law: CoupledLaw,
    group: Group,
}

impl Coupling {
    pub(super) fn new(law: CoupledLaw) -> Self {
        Self { law, group: Group::default() }
    }
}

impl ControllerFactory for Coupling {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        let mut shares = lock(&self.group);
        let place = shares.iter().position(Option::is_none).unwrap_or_else(|| {
            shares.push(None);
            shares.len() - 1
        });
        shares[place] = Some(Share { window: INITIAL as f64, ..Share::default() });
        let member = Arc::new(Member { group: Arc::clone(&self.group), place });
        let mtu = u64::from(current_mtu);
        let window = (INITIAL * mtu) as f64;
        let law = self.law;
        Box::new(Coupled { law, member, mtu, window, ssthresh: u64::MAX, reduced_at: now })
    }
}

/// A path's place among those of its connection.
#[derive(Debug)]
struct Member {
    group: Group,
    place: usize,
}

impl Drop for Member {
    fn drop(&mut self) {
        lock(&self.group)[self.place] = None;
    }
}

/// The controller of one path; clones are of the same path.
#[derive(Debug, Clone)]
struct Coupled {
    law: CoupledLaw,
    member: Arc<Member>,
    /// The largest UDP payload, in bytes.
    mtu: u64,
    /// In bytes; the fraction counts acks towards the next packet.
    window: f64,
    ssthresh: u64,
    /// The last reduction; losses of packets that were sent before belong to it.
    reduced_at: Instant,
}

impl Coupled {
    /// Updates this path's share, which the other paths read. Returns the increase per packet
    /// delivered.
    fn share(&self, change: impl FnOnce(&mut Share)) -> f64 {
        let mut shares = lock(&self.member.group);
        let Some(own) = &mut shares[self.member.place] else { return 0.0 };
        own.window = self.window / self.mtu as f64;
        change(own);
        let own = *own;
        if own.round_trip <= 0.0 {
            return 0.0;
        }
        let known = shares.iter().flatten().filter(|share| share.round_trip > 0.0);
        self.law.increase(&own, known)
    }

    fn min_window(&self) -> f64 {
        (MIN * self.mtu) as f64
    }
}

impl Controller for Coupled {
    fn on_ack(
        &mut self,
        _now: Instant,
        sent: Instant,
        bytes: u64,
        _pn: u64,
        app_limited: bool,
        rtt: &RttEstimator,
    ) {
        let packets = bytes as f64 / self.mtu as f64;
        let increase = self.share(|own| {
            own.round_trip = rtt.get().as_secs_f64();
            own.on_delivered(packets);
        });
        if app_limited || sent <= self.reduced_at {
            return;
        }
        if (self.window as u64) < self.ssthresh {
            self.window = (self.window + bytes as f64).min(self.ssthresh as f64);
        } else {
            self.window = (self.window + bytes as f64 * increase).max(self.min_window());
        }
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        is_persistent_congestion: bool,
        _is_ecn: bool,
        _lost_bytes: u64,
        _largest_lost_pn: u64,
    ) {
        if sent > self.reduced_at {
            self.reduced_at = now;
            self.window = (self.window / 2.0).max(self.min_window());
            self.ssthresh = self.window as u64;
        }
        if is_persistent_congestion {
            self.window = self.min_window();
        }
        self.share(Share::on_loss);
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.mtu = new_mtu.into();
        self.window = self.window.max(self.min_window());
    }

    fn window(&self) -> u64 {
        self.window as u64
    }

    fn metrics(&self) -> ControllerMetrics {
        let mut metrics = ControllerMetrics::default();
        metrics.congestion_window = self.window();
        metrics.ssthresh = Some(self.ssthresh);
        metrics
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        INITIAL * self.mtu
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;

    #[test]
    fn a_path_counts_until_its_last_controller_is_gone() {
        let coupling = Arc::new(Coupling::new(CoupledLaw::Lia));
        let clock = Clock::new();
        let build = || Arc::clone(&coupling).build(clock.instant_of(clock.now()), 1200);
        let count = || lock(&coupling.group).iter().flatten().count();
        let (first, second) = (build(), build());
        let clone = first.clone_box();
        drop(first);
        assert_eq!((count(), clone.window(), second.initial_window()), (2, 12_000, 12_000));
        drop(clone);
        assert_eq!(count(), 1);
        let _third = build();
        assert_eq!((count(), lock(&coupling.group).len()), (2, 2), "its place is used again");
    }
}
