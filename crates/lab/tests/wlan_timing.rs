//! What the downlink's model believes of 802.11ac is what the lab's cells do.

use freshline_core::unit::{Bytes, Span};
use freshline_core::wlan;
use freshline_core::wlan::mac::{Access, Category, Framing, Guard, Mode, Standard, Timing, Width};

const PACKET: Bytes = Bytes::new(1500);
const WIDTHS: [(Width, wlan::Width); 3] = [
    (Width::Mhz20, wlan::Width::Mhz20),
    (Width::Mhz40, wlan::Width::Mhz40),
    (Width::Mhz80, wlan::Width::Mhz80),
];
const GUARDS: [(Guard, wlan::Guard); 2] =
    [(Guard::Long, wlan::Guard::Long), (Guard::Short, wlan::Guard::Short)];

/// Every combination that one of the two has, in both.
fn combinations() -> impl Iterator<Item = (Option<Mode>, Option<wlan::Vht>)> {
    let settings = (0..=10u8).flat_map(|mcs| (1..=5u8).map(move |streams| (mcs, streams)));
    settings.flat_map(|(mcs, streams)| {
        WIDTHS.into_iter().flat_map(move |(ours, width)| {
            GUARDS.into_iter().map(move |(pause, guard)| {
                let params = wlan::VhtParams { mcs, streams, width, guard };
                (Mode::vht(mcs, streams, ours, pause), params.build().ok())
            })
        })
    })
}

#[test]
fn both_have_the_same_rates_and_leave_out_the_same() {
    for (mode, vht) in combinations() {
        assert_eq!(mode.map(|mode| mode.rate()), vht.map(|vht| vht.rate()), "{mode:?} {vht:?}");
    }
}

#[test]
fn a_frame_takes_in_the_model_what_it_takes_in_a_cell() {
    let timing = Timing::of(Standard::Ac);
    let Access::Edca(categories) = Access::EDCA else { panic!("802.11ac has categories") };
    let best_effort = categories[Category::BestEffort as usize];
    let framing = Framing::new(Standard::Ac, &Access::EDCA, 64);
    let before = timing.aifs(best_effort.aifsn) + timing.slot * best_effort.cw_min.into() / 2;
    for (mode, vht) in combinations() {
        let (Some(mode), Some(vht)) = (mode, vht) else { continue };
        let link = wlan::Link::vht(vht, wlan::Access::BEST_EFFORT, PACKET);
        let mut ampdu = Bytes::ZERO;
        for level in 1..=64u32 {
            ampdu = framing.appended(ampdu, framing.mpdu(PACKET));
            let response = framing.response(&mode, level as usize);
            let cell = before + mode.duration(ampdu) + timing.sifs + response;
            let model = link.overhead + Span::from_secs_f64(link.airtime * f64::from(level));
            // Half a symbol either way, the end on a whole long symbol, and the last word's filling;
            // one packet alone is acknowledged by less than a block acknowledgement.
            let apart = cell.max(model) - cell.min(model);
            let filling = mode.rate().time_to_send(Bytes::new(3));
            let most = Span::from_nanos(5_600) + filling;
            assert!(level == 1 || apart <= most, "{mode:?}, {level}: {cell} {model}");
        }
    }
}
