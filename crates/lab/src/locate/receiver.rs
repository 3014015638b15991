//! A receiver in a capture: its frames, which are shared by all flows to it.
//!
//! An access point packs all queued packets for a station into one frame, whatever their flows. So
//! the level is that of the receiver's frames. Each flow gets it once the next frame begins.

use std::net::IpAddr;

use freshline_core::unit::Time;
use freshline_core::wlan::estimator::KernelFrames;

/// The address of a receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Address {
    /// In 802.11, the receiver address of a frame.
    Station([u8; 6]),
    /// In a capture without frames, the host at which it was made.
    Host(IpAddr),
}

/// One receiver, and its newest frame.
#[derive(Debug)]
pub(super) struct Receiver {
    /// Detects frames by the times of capture, if no radio reports them.
    kernel: KernelFrames,
    frame: Option<Time>,
    /// The number of packets in the newest frame.
    packets: u64,
    /// The numbers of packets of tracked flows, by the flow's index.
    of_flows: Vec<(usize, u64)>,
}

impl Receiver {
    pub(super) fn new(kernel: KernelFrames) -> Self {
        Self { kernel, frame: None, packets: 0, of_flows: Vec::new() }
    }

    /// The frame of a packet with this kernel timestamp; `None` while there are too few packets to
    /// decide.
    pub(super) fn frame_of(&mut self, stamp: Time) -> Option<Time> {
        self.kernel.on_packet(stamp)
    }

    /// A packet has arrived in this frame, of a flow that is tracked or not. If it begins a frame,
    /// reports each flow of the last frame to `report`: the flow, the frame, and the number of
    /// packets of other flows.
    pub(super) fn on_packet(
        &mut self,
        frame: Time,
        flow: Option<usize>,
        report: impl FnMut(usize, Time, u64),
    ) {
        if self.frame != Some(frame) {
            self.end_frame(report);
            self.frame = Some(frame);
        }
        self.packets += 1;
        let Some(flow) = flow else { return };
        match self.of_flows.iter_mut().find(|(known, _)| *known == flow) {
            Some((_, own)) => *own += 1,
            None => self.of_flows.push((flow, 1)),
        }
    }

    /// No more packets arrive in the newest frame.
    pub(super) fn end_frame(&mut self, mut report: impl FnMut(usize, Time, u64)) {
        if let Some(frame) = self.frame.take() {
            for (flow, own) in self.of_flows.drain(..) {
                let others = self.packets - own;
                if others > 0 {
                    report(flow, frame, others);
                }
            }
        }
        self.of_flows.clear();
        self.packets = 0;
    }
}
