//! Simultaneous events on the mesh's air: no node gains by its number.

use freshline_core::unit::{Span, Time};
use freshline_lab::mesh::{Backoff, Csma, Event, Outcome, Radio, RadioStats, Reach, phy};
use proptest::prelude::*;
use rand_pcg::Pcg64;

/// No backoff at all: a frame begins a CCA and a turnaround after it was handed in.
const AT_ONCE: Csma = Csma {
    backoff: Backoff::Standard,
    min_be: 0,
    max_be: 0,
    max_backoffs: 4,
    max_retries: 0,
    retry_delay: Span::ZERO,
    ack_wait: phy::ACK_WAIT,
    second_look: None,
};
const OCTETS: u64 = 50;

/// A frame that is handed in at some µs.
#[derive(Debug, Clone, Copy)]
struct Sending {
    micros: u64,
    ends: [usize; 2],
}

/// The outcome of frames, in the order of time and sender, and the radios' statistics.
#[derive(Debug, PartialEq, Eq)]
struct Air {
    events: Vec<(Time, usize, Event)>,
    stats: Vec<RadioStats>,
}

impl Air {
    /// Radios of which `links` hear each other, called by `numbers` on the air.
    fn new(csma: Csma, links: &[(usize, usize)], numbers: &[u32], sendings: &[Sending]) -> Self {
        let mut reach = vec![Vec::new(); numbers.len()];
        for (one, other) in links.iter().flat_map(|&(one, other)| [(one, other), (other, one)]) {
            let heard = Reach {
                node: numbers[other],
                distance: 10.0,
                hears: true,
                senses: true,
                disturbs: true,
                loss: 0.0,
            };
            reach[numbers[one] as usize].push(heard);
        }
        let mut radio = Radio::new(csma, reach, Pcg64::new(1, 1));
        let whose = |number: u32| numbers.iter().position(|it| *it == number).unwrap();
        let mut events = Vec::new();
        let mut run = |radio: &mut Radio, until: Time| {
            while let Some((at, event)) = radio.poll(until) {
                let (Event::Ended { from, .. } | Event::Done { from, .. }) = event;
                let node = whose(from);
                let event = match event {
                    Event::Ended { arrived, .. } => Event::Ended { from: node as u32, arrived },
                    Event::Done { outcome, .. } => Event::Done { from: node as u32, outcome },
                };
                events.push((at, node, event));
            }
        };
        for Sending { micros, ends } in sendings {
            let now = Time::ZERO + Span::from_micros(*micros);
            run(&mut radio, now);
            let [from, to] = ends.map(|end| numbers[end]);
            if radio.is_idle(from) {
                radio.send(now, from, to, OCTETS);
            }
        }
        run(&mut radio, Time::MAX);
        events.sort_by_key(|(at, node, _)| (*at, *node));
        let stats = numbers.iter().map(|number| radio.stats()[*number as usize]).collect();
        Self { events, stats }
    }

    fn arrived(&self, node: usize) -> bool {
        self.events.iter().any(|(_, from, event)| {
            *from == node && matches!(event, Event::Ended { arrived: true, .. })
        })
    }
}

/// 1 and 2 hear 0, and not each other; 2 hears 3.
const HIDDEN: [(usize, usize); 3] = [(0, 1), (0, 2), (2, 3)];

#[test]
fn a_frame_that_begins_just_as_one_ends_leaves_it_alone() {
    let airtime = phy::airtime(OCTETS).as_micros();
    for numbers in [[0, 1, 2, 3], [0, 2, 1, 3], [3, 2, 1, 0]] {
        let air = |later| {
            let sendings = [
                Sending { micros: 0, ends: [1, 0] },
                Sending { micros: airtime + later, ends: [2, 3] },
            ];
            Air::new(AT_ONCE, &HIDDEN, &numbers, &sendings[..])
        };
        assert!(air(0).arrived(1), "{numbers:?}");
        assert!(air(0).arrived(2), "{numbers:?}");
    }
    let sendings =
        [Sending { micros: 0, ends: [1, 0] }, Sending { micros: airtime - 16, ends: [2, 3] }];
    let overlap = Air::new(AT_ONCE, &HIDDEN, &[0, 1, 2, 3], &sendings);
    assert!(!overlap.arrived(1), "a symbol earlier it is lost");
}

/// All three hear each other.
const OPEN: [(usize, usize); 3] = [(0, 1), (0, 2), (1, 2)];

#[test]
fn a_cca_does_not_see_what_begins_at_its_end() {
    let turnaround = phy::TURNAROUND.as_micros();
    for numbers in [[0, 1, 2], [0, 2, 1], [2, 1, 0]] {
        let busy = |later| {
            let sendings =
                [Sending { micros: 0, ends: [1, 0] }, Sending { micros: later, ends: [2, 0] }];
            Air::new(AT_ONCE, &OPEN, &numbers, &sendings).stats[2].busy
        };
        assert_eq!(busy(turnaround), 0, "{numbers:?}");
        assert!(busy(turnaround + 16) > 0, "{numbers:?}: it sees a frame of a symbol earlier");
    }
}

#[test]
fn who_look_at_once_both_find_the_channel_idle_and_collide() {
    for numbers in [[0, 1, 2], [0, 2, 1]] {
        let sendings = [Sending { micros: 0, ends: [1, 0] }, Sending { micros: 0, ends: [2, 0] }];
        let air = Air::new(AT_ONCE, &OPEN, &numbers, &sendings);
        let done = air
            .events
            .iter()
            .filter(|(_, _, event)| matches!(event, Event::Done { outcome: Outcome::NoAck, .. }));
        assert_eq!((done.count(), air.stats[1].busy + air.stats[2].busy), (2, 0));
    }
}

proptest! {
    /// Nodes with random links; sendings begin at multiples of four symbols (64 µs), so that many
    /// events are simultaneous.
    #[test]
    fn nobody_gains_by_its_number(
        links in prop::collection::btree_set((0usize..6, 0usize..6), 1..15),
        sendings in prop::collection::vec((0u64..8, 0usize..64), 1..60),
        numbers in Just([0u32, 1, 2, 3, 4, 5]).prop_shuffle(),
        max_retries in 0u8..3,
    ) {
        let links: Vec<_> = links.into_iter().filter(|(one, other)| one < other).collect();
        prop_assume!(!links.is_empty());
        let mut micros = 0;
        let sendings: Vec<_> = sendings.iter().map(|(gap, link)| {
            micros += 64 * gap;
            let (one, other) = links[link / 2 % links.len()];
            let ends = if link % 2 == 0 { [one, other] } else { [other, one] };
            Sending { micros, ends }
        }).collect();
        let csma = Csma { max_retries, ..AT_ONCE };
        let [air, renamed] =
            [[0, 1, 2, 3, 4, 5], numbers].map(|numbers| Air::new(csma, &links, &numbers, &sendings));
        prop_assert_eq!(air, renamed);
    }
}
