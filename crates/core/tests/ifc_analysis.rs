//! The theory of freshness control compared with packets: the real `Ifc` in front of a real link.

use freshline_core::age::AgeProcess;
use freshline_core::link::{Delivered, Hop, LinkParams};
use freshline_core::router::analysis::{Bottleneck, Prediction, PulseTrain, Suggestion, Tie, Wish};
use freshline_core::router::{
    AnyScheduler, AoiShare, Classifier, Drop, Fifo, FlowKey, Header, Ifc, Ifil, IfilParams, Limit,
    Packet, SchedulerParams, TdmParams,
};
use freshline_core::unit::{BitRate, Bytes, Span, Time};
use rand_pcg::Pcg64;

/// A packet of one of the flows of updates, or of the drop-averse traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Item {
    flow: Option<u32>,
    size: Bytes,
    generated_at: Time,
}

impl Packet for Item {
    fn size(&self) -> Bytes {
        self.size
    }

    fn header(&self) -> Header {
        let protocol = self.flow.map_or(FlowKey::TCP, |_| FlowKey::UDP);
        let source_port = self.flow.unwrap_or(0) as u16;
        Header { flow: FlowKey { protocol, source_port, ..FlowKey::default() }, ..<_>::default() }
    }
}

/// How the updates of the flows lie in the period.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Phases {
    Spread,
    Together,
}

type Router = Ifc<Ifil<Item>, Fifo<Item>, AnyScheduler>;

fn router(scheduler: SchedulerParams, share: AoiShare) -> Router {
    let updates = Ifil::new(IfilParams::default(), &mut Pcg64::new(1, 1)).unwrap();
    let bulk = Fifo::new(Limit::default());
    Ifc::new("udp force".parse::<Classifier>().unwrap(), updates, bulk, scheduler.build(share))
}

/// The router behind which a link sends.
fn hop(link: &Bottleneck, scheduler: SchedulerParams, share: AoiShare) -> Hop<Router, Item, Pcg64> {
    let rate = Some(link.rate);
    let params = LinkParams { rate, delay: link.propagation, ..LinkParams::default() };
    Hop::new(params, router(scheduler, share), Pcg64::new(2, 2))
}

fn only_updates_are_dropped(drop: Drop<Item>) {
    assert!(drop.packet.flow.is_some(), "{drop:?}");
}

/// Deliveries of a link with a backlog of drop-averse packets while each flow makes `updates`; the
/// packets of a fluid are left out.
fn deliveries(
    link: &Bottleneck,
    scheduler: SchedulerParams,
    share: AoiShare,
    phases: Phases,
    updates: u64,
) -> Vec<Delivered<Item>> {
    let mut hop = hop(link, scheduler, share);
    let drops = &mut only_updates_are_dropped;
    let bulk = Item { flow: None, size: link.drop_averse_size, generated_at: Time::ZERO };
    let backlog = if bulk.size == Bytes::ZERO { 0 } else { 300 };
    let flows = u64::from(link.flows);
    let mut delivered = Vec::new();
    for number in 0..updates * flows {
        let (round, flow) = (number / flows, number % flows);
        let phase = match phases {
            Phases::Spread => link.update_period * flow / flows,
            Phases::Together => Span::ZERO,
        };
        let now = Time::ZERO + link.update_period * round + phase;
        while let Some(event) = hop.poll_timeout().filter(|event| *event <= now) {
            while let Some(next) = hop.poll(event, drops) {
                if next.packet.flow.is_none() {
                    hop.enqueue(event, bulk, drops);
                }
                delivered.push(next);
            }
        }
        let update = Item { flow: Some(flow as u32), size: link.update_size, generated_at: now };
        hop.enqueue(now, update, drops);
        if number == 0 {
            (0..backlog).for_each(|_| hop.enqueue(now, bulk, drops));
        }
    }
    delivered
}

/// The result of 3,000 updates of each flow, of which the first 300 precede the measurement.
fn measured(
    link: &Bottleneck,
    scheduler: SchedulerParams,
    share: AoiShare,
    phases: Phases,
) -> Prediction {
    let delivered = deliveries(link, scheduler, share, phases, 3_000);
    let start = Time::ZERO + link.update_period * 300;
    let end = delivered.last().unwrap().at;
    let measured = delivered.iter().filter(|delivered| delivered.at > start);
    let bulk = measured.filter(|delivered| delivered.packet.flow.is_none());
    let bytes = bulk.fold(Bytes::ZERO, |sum, delivered| sum + delivered.packet.size);
    let age_of = |flow: u32| {
        let mut age = AgeProcess::new();
        let mut mark = age.mark(start);
        for delivered in delivered.iter().filter(|next| next.packet.flow == Some(flow)) {
            if delivered.at <= start {
                mark = age.mark(start);
            }
            age.on_update(delivered.at, delivered.packet.generated_at);
        }
        age.mean_since(mark, end).unwrap().as_secs_f64()
    };
    let ages = (0..link.flows).map(age_of).sum::<f64>();
    Prediction {
        age: Span::from_secs_f64(ages / f64::from(link.flows)),
        drop_averse: BitRate::of(bytes, end.since(start)).unwrap(),
    }
}

fn share(share: f64) -> AoiShare {
    AoiShare::new(share).unwrap()
}

fn sdm() -> SchedulerParams {
    SchedulerParams::default()
}

fn tdm(frame: u64) -> SchedulerParams {
    SchedulerParams::Tdm(TdmParams { frame: Span::from_millis(frame) })
}

const PAPER: Bottleneck = Bottleneck {
    rate: BitRate::from_mbps(10),
    propagation: Span::from_millis(10),
    flows: 1,
    update_period: Span::from_millis(5),
    update_size: Bytes::new(1052),
    drop_averse_size: Bytes::new(1500),
};

fn relative_error(predicted: f64, measured: f64) -> f64 {
    (predicted / measured - 1.0).abs()
}

/// Compares the theory with packets: the age must agree within the fraction `age` of itself, and
/// the throughput left for drop-averse traffic within the fraction `throughput` of the link.
#[track_caller]
fn compare(link: &Bottleneck, scheduler: SchedulerParams, gamma: f64, age: f64, throughput: f64) {
    let theory = link.predict(scheduler, share(gamma)).unwrap();
    let packets = measured(link, scheduler, share(gamma), Phases::Spread);
    let off = relative_error(theory.age.as_secs_f64(), packets.age.as_secs_f64());
    assert!(off < age, "{link:?} {scheduler:?} {gamma}: {theory:?}, measured {packets:?}");
    let off = theory.drop_averse.as_bps().abs_diff(packets.drop_averse.as_bps()) as f64;
    let off = off / link.rate.as_bps() as f64;
    assert!(off < throughput, "{link:?} {scheduler:?} {gamma}: {theory:?}, measured {packets:?}");
}

/// The mean age over `cycles` of `services` each, from the delivery of the tenth update on.
fn age_over_cycles(delivered: &[Delivered<Item>], services: u64, cycles: u64) -> Span {
    let mut updates = delivered.iter().filter(|next| next.packet.flow.is_some()).skip(9);
    let mut age = AgeProcess::new();
    let first = updates.next().unwrap();
    age.on_update(first.at, first.packet.generated_at);
    let mut end = first.at;
    for next in updates.take((services * cycles) as usize) {
        end = next.at;
        age.on_update(next.at, next.packet.generated_at);
    }
    age.mean(end).unwrap()
}

#[test]
fn updates_alone_on_a_link_are_as_old_as_the_pulse_train_says_to_the_nanosecond() {
    // A byte takes 1 µs. The first is the paper's example; services till the phases come again.
    for (bytes, period, services) in
        [(1900, 1000, 10), (1400, 1000, 5), (700, 1000, 1), (1500, 400, 4)]
    {
        let link = Bottleneck {
            rate: BitRate::from_mbps(8),
            update_period: Span::from_micros(period),
            update_size: Bytes::new(bytes),
            drop_averse_size: Bytes::ZERO,
            ..PAPER
        };
        let train = PulseTrain {
            update_period: link.update_period,
            output_period: Span::ZERO,
            transmission: Span::from_micros(bytes),
            propagation: link.propagation,
        };
        let delivered = deliveries(&link, sdm(), AoiShare::HALF, Phases::Spread, 1_000);
        let age = age_over_cycles(&delivered, services, 20);
        assert_eq!(age, train.ifil_age(Tie::DepartureFirst), "{bytes} B every {period} µs");
    }
}

#[test]
fn under_sdm_every_fourth_packet_makes_a_pulse_train_of_four_transmissions() {
    let link = Bottleneck {
        rate: BitRate::from_mbps(8),
        update_size: Bytes::new(1300),
        drop_averse_size: Bytes::new(1300),
        ..PAPER
    };
    let train = PulseTrain {
        update_period: link.update_period,
        output_period: Span::from_micros(4 * 1300),
        transmission: Span::from_micros(1300),
        propagation: link.propagation,
    };
    let delivered = deliveries(&link, sdm(), share(0.25), Phases::Spread, 1_000);
    // 5.2 and 5 ms have 0.2 ms in common: 25 services till the phases come again.
    let age = age_over_cycles(&delivered, 25, 20);
    assert_eq!(age, train.ifil_age(Tie::DepartureFirst));
    let generic = link.predict(sdm(), share(0.25)).unwrap().age;
    assert_eq!(generic, train.generic_ifil_age());
    assert_eq!(age, generic + Span::from_micros(100));
}

/// A link of `mbit` Mbit/s with `flows` flows of an update every `period` µs.
fn link(mbit: u64, flows: u32, period: u64) -> Bottleneck {
    let update_period = Span::from_micros(period);
    Bottleneck { rate: BitRate::from_mbps(mbit), flows, update_period, ..PAPER }
}

#[test]
fn sdm_is_within_1_5_percent_of_the_theory_away_from_the_transition_point() {
    for (mbit, flows, period, gammas) in [
        (10, 1, 5_003, [0.02, 0.05, 0.1, 0.15, 0.2, 0.5, 1.0]),
        (10, 1, 20_011, [0.01, 0.02, 0.035, 0.05, 0.1, 0.3, 0.9]),
        (10, 3, 5_003, [0.02, 0.1, 0.3, 0.4, 0.6, 0.8, 1.0]),
        (10, 10, 5_003, [0.05, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0]),
        (100, 3, 5_003, [0.005, 0.01, 0.02, 0.04, 0.06, 0.5, 1.0]),
        (2, 1, 50_021, [0.01, 0.03, 0.05, 0.07, 0.1, 0.5, 1.0]),
        // Slow: the larger shares are refused.
        (2, 1, 5_003, [0.03, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3]),
    ] {
        for gamma in gammas {
            compare(&link(mbit, flows, period), sdm(), gamma, 0.015, 0.0005);
        }
    }
}

#[test]
fn tdm_is_within_4_percent_of_the_theory() {
    for (frame, mbit, flows, period, gammas) in [
        (100, 10, 1, 5_003, [0.05, 0.2, 0.5, 0.8, 1.0]),
        (20, 10, 1, 5_003, [0.06, 0.2, 0.5, 0.8, 1.0]),
        (100, 10, 3, 5_003, [0.1, 0.3, 0.5, 0.8, 1.0]),
        (20, 10, 3, 5_003, [0.3, 0.4, 0.5, 0.8, 1.0]),
        (100, 10, 10, 5_003, [0.1, 0.3, 0.5, 0.8, 1.0]),
        (20, 100, 10, 5_003, [0.1, 0.3, 0.5, 0.8, 1.0]),
    ] {
        for gamma in gammas {
            compare(&link(mbit, flows, period), tdm(frame), gamma, 0.04, 0.02);
        }
    }
}

#[test]
fn several_flows_stay_within_the_bounds_of_the_proof_just_above_the_transition_point() {
    for (mbit, flows, period) in [(100, 3, 5_003), (100, 10, 5_003), (10, 2, 20_011)] {
        let link = link(mbit, flows, period);
        let update = link.rate.time_to_send(link.update_size).as_secs_f64();
        let period = link.update_period.as_secs_f64();
        for ratio in [1.005, 1.02, 1.1, 1.5] {
            let round = ratio * period;
            let gamma = share(f64::from(flows) * update / round);
            for phases in [Phases::Spread, Phases::Together] {
                let age = measured(&link, sdm(), gamma, phases).age.as_secs_f64();
                let fresh = link.propagation.as_secs_f64() + update;
                // The proof is for a fluid; a packet is 0.12 or 1.2 ms.
                let packet = link.rate.time_to_send(link.drop_averse_size).as_secs_f64();
                assert!(age > fresh + round / 2.0 - packet, "{link:?} {ratio} {phases:?}: {age}");
                let most = fresh + period / 2.0 + round + packet;
                assert!(age < most, "{link:?} {ratio} {phases:?}: {age}");
            }
        }
    }
}

#[test]
fn at_the_transition_point_the_age_of_packets_jumps_by_half_a_period() {
    // Small drop-averse packets, nearly a fluid; d/T = 0.1683.
    let link = Bottleneck { drop_averse_size: Bytes::new(60), ..PAPER };
    let age = |gamma| measured(&link, sdm(), share(gamma), Phases::Spread).age.as_millis_f64();
    let jump = age(0.167) - age(0.17);
    assert!((jump - 2.5).abs() < 0.1, "{jump} ms");
}

#[test]
fn updates_that_come_together_wait_for_half_of_the_others() {
    let link = link(10, 3, 20_011);
    let age = |phases| measured(&link, sdm(), AoiShare::HALF, phases).age;
    let others = age(Phases::Together) - age(Phases::Spread);
    // (N − 1)·d/2.
    assert!((others.as_millis_f64() - 0.8416).abs() < 0.01, "{others}");
}

#[test]
fn the_papers_truthful_row_comes_out_within_5_percent() {
    let truthful = measured(&PAPER, sdm(), AoiShare::HALF, Phases::Spread);
    assert!(relative_error(truthful.age.as_millis_f64(), 13.57) < 0.05, "{truthful:?}");
    // Of 1500 bytes TCP carries 1448; the link layer is not in the model.
    let goodput = truthful.drop_averse.as_bps() as f64 * 1448.0 / 1500.0;
    assert!(relative_error(goodput, 7.52e6) < 0.07, "{truthful:?}");
}

#[test]
fn what_was_suggested_fulfils_the_wish() {
    for scheduler in [sdm(), tdm(100), tdm(20)] {
        for link in [link(10, 1, 5_003), link(10, 3, 5_003), link(100, 10, 5_003)] {
            for age in [14, 17, 25, 40].map(Span::from_millis) {
                let suggestion = link.suggest(scheduler, Wish::AgeAtMost(age));
                let Ok(Suggestion { share, .. }) = suggestion else { continue };
                let packets = measured(&link, scheduler, share, Phases::Spread);
                let off = packets.age.as_secs_f64() / age.as_secs_f64() - 1.0;
                assert!(off < 0.03, "{link:?} {scheduler:?}: {packets:?} for {age}");
            }
            for part in [0.3, 0.6, 0.9, 0.95] {
                let rate = link.rate.as_bps() as f64;
                let wish = Wish::ThroughputAtLeast(BitRate::from_bps((part * rate) as u64));
                let Ok(Suggestion { share, .. }) = link.suggest(scheduler, wish) else { continue };
                let packets = measured(&link, scheduler, share, Phases::Spread);
                let got = packets.drop_averse.as_bps() as f64 / rate;
                assert!(got > part - 0.03, "{link:?} {scheduler:?}: {packets:?} for {part}");
            }
        }
    }
}
