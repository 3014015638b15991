//! Radiotap headers of frames, read here and by the `radiotap` crate.

use freshline_core::unit::BitRate;
use freshline_core::wlan::air::{Ampdu, Phy, Radiotap, RadiotapError, Stamp, Width};
use freshline_core::wlan::mac::Guard;
use proptest::prelude::*;
use radiotap::field::{AMPDUStatus, MCS, VHT};

fn width() -> impl Strategy<Value = Width> {
    prop::sample::select(vec![Width::Mhz20, Width::Mhz40, Width::Mhz80, Width::Mhz160])
}

fn guard() -> impl Strategy<Value = Guard> {
    prop::sample::select(vec![Guard::Long, Guard::Short])
}

fn phy() -> impl Strategy<Value = Phy> {
    let narrow = prop::sample::select(vec![Width::Mhz20, Width::Mhz40]);
    let subcarriers = prop::sample::select(vec![24, 48, 102, 234, 468, 980, 1960]);
    let pause = prop::sample::select(vec![800, 1_600, 3_200]);
    prop_oneof![
        (1u64..128).prop_map(|half| Phy::Legacy(BitRate::from_bps(half * 500_000))),
        (0u8..32, narrow, guard()).prop_map(|(mcs, width, guard)| Phy::Ht { mcs, width, guard }),
        (0u8..10, 1u8..=8, width(), guard()).prop_map(|(mcs, streams, width, guard)| Phy::Vht {
            mcs,
            streams,
            width,
            guard
        }),
        (0u8..12, 1u8..=8, subcarriers, pause, any::<bool>()).prop_map(
            |(mcs, streams, subcarriers, guard_ns, is_dual)| Phy::He {
                mcs,
                streams,
                subcarriers,
                guard_ns,
                is_dual
            }
        ),
    ]
}

fn radio() -> impl Strategy<Value = Radiotap> {
    let ampdu =
        (any::<u32>(), any::<bool>()).prop_map(|(reference, is_last)| Ampdu { reference, is_last });
    let flags = any::<[bool; 3]>();
    (any::<Option<u64>>(), flags, prop::option::of(phy()), prop::option::of(ampdu)).prop_map(
        |(tsft, [has_fcs, is_bad, is_padded], phy, ampdu)| Radiotap {
            tsft,
            has_fcs,
            is_bad,
            is_padded,
            phy,
            ampdu,
        },
    )
}

/// The data rate in bit/s by the crate, which counts in Mbit/s.
fn bps(mbps: f32) -> u64 {
    (f64::from(mbps) * 1e6).round() as u64
}

/// The crate's table is rounded, in some lines (130.3 for 130) by a quarter of a percent.
fn is_near(ours: u64, theirs: u64) -> bool {
    ours.abs_diff(theirs) as f64 <= 0.003 * ours as f64 + 50_000.0
}

proptest! {
    #[test]
    fn a_header_reads_as_it_was_written(radio in radio(), frame: Vec<u8>) {
        let mut record = Vec::new();
        radio.write(&mut record);
        record.extend_from_slice(&frame);
        let (read, rest) = Radiotap::parse(&record).unwrap();
        prop_assert_eq!(read, radio);
        let checked = if radio.has_fcs { frame.len().saturating_sub(4) } else { frame.len() };
        prop_assert_eq!(rest, &frame[..checked]);
    }

    #[test]
    fn what_is_written_is_the_same_to_the_radiotap_crate(radio in radio()) {
        let mut record = Vec::new();
        radio.write(&mut record);
        let Ok(theirs) = radiotap::Radiotap::from_bytes(&record) else {
            // Modes that 802.11 has not, or that its table lacks.
            let is_strange = |phy: Phy| match phy {
                Phy::Vht { streams, .. } => streams > 4 || phy.rate().is_none(),
                _ => false,
            };
            prop_assert!(radio.phy.is_some_and(is_strange), "{:?}", radio);
            return Ok(());
        };
        prop_assert_eq!(theirs.header.length, record.len());
        prop_assert_eq!(theirs.tsft.map(|tsft| tsft.value), radio.tsft);
        let flags = theirs.flags.unwrap();
        prop_assert_eq!((flags.fcs, flags.bad_fcs, flags.data_pad), (radio.has_fcs, radio.is_bad, radio.is_padded));
        let reference = |status: AMPDUStatus| (status.reference, status.last);
        let expected = radio.ampdu.map(|ampdu| (ampdu.reference, Some(ampdu.is_last)));
        prop_assert_eq!(theirs.ampdu_status.map(reference), expected);
        match radio.phy {
            Some(Phy::Legacy(rate)) => {
                prop_assert_eq!(bps(theirs.rate.unwrap().value), rate.as_bps());
            }
            Some(phy @ Phy::Ht { mcs, .. }) => {
                let MCS { index, datarate, .. } = theirs.mcs.unwrap();
                prop_assert_eq!(index, Some(mcs));
                if let Some(rate) = phy.rate() {
                    let theirs = bps(datarate.unwrap());
                    prop_assert!(is_near(rate.as_bps(), theirs), "{:?}: {}", phy, theirs);
                }
            }
            Some(phy @ Phy::Vht { mcs, streams, .. }) => {
                let VHT { users: [Some(user), ..], .. } = theirs.vht.unwrap() else {
                    panic!("no user");
                };
                prop_assert_eq!((user.index, user.nss), (mcs, streams));
                if let (Some(rate), Some(theirs)) = (phy.rate(), user.datarate) {
                    let theirs = bps(theirs);
                    prop_assert!(is_near(rate.as_bps(), theirs), "{:?}: {}", phy, theirs);
                }
            }
            _ => {}
        }
    }

    #[test]
    fn any_bytes_give_a_header_or_an_error(mut bytes: Vec<u8>, ours: bool) {
        if ours && bytes.len() > 4 {
            (bytes[0], bytes[2], bytes[3]) = (0, bytes.len().min(255) as u8, 0);
        }
        if let Ok((radio, frame)) = Radiotap::parse(&bytes) {
            prop_assert!(frame.len() <= bytes.len() - 8);
            if let Some(stamp) = radio.stamp() {
                stamp.as_time();
            }
        }
    }
}

/// A header with these words of present bits and fields.
fn header(present: &[u32], fields: &[u8]) -> Vec<u8> {
    let len = (4 + 4 * present.len() + fields.len()) as u16;
    let mut bytes = [&[0, 0][..], &len.to_le_bytes()].concat();
    present.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
    bytes.extend(fields);
    bytes
}

const ANEW: u32 = 1 << 29;
const VENDOR: u32 = 1 << 30;
const MORE: u32 = 1 << 31;

#[test]
fn fields_stand_where_their_alignment_puts_them() {
    // Flags, rate, channel, signal, antenna, A-MPDU: as `ath10k` hands it up, with the time left out.
    let present = 1 << 1 | 1 << 2 | 1 << 3 | 1 << 5 | 1 << 11 | 1 << 20;
    let fields = [
        &[0x10, 12, 0x3C, 0x14, 0x40, 1, 0xC4, 0][..], // up to 16
        &[9, 0, 0, 0, 0x0C, 0, 0, 0],
    ];
    let bytes = [header(&[present], &fields.concat()), b"frame and fcs!".to_vec()].concat();
    let (radio, frame) = Radiotap::parse(&bytes).unwrap();
    assert_eq!(radio.phy, Some(Phy::Legacy(BitRate::from_mbps(6))));
    assert_eq!(radio.ampdu, Some(Ampdu { reference: 9, is_last: true }));
    assert_eq!(frame, b"frame and ");
    let theirs = radiotap::Radiotap::from_bytes(&bytes).unwrap();
    assert_eq!(theirs.ampdu_status.unwrap().reference, 9);
}

#[test]
fn several_words_and_what_vendors_say_are_skipped() {
    // One field an antenna in further words, a vendor between them, and a time that only the last
    // word has: 4 words end at 20.
    let present = [1 << 1 | MORE | ANEW, 1 << 5 | MORE | VENDOR, 1 << 3 | 1 << 7 | MORE | ANEW, 1];
    let fields = [
        &[0x40, 0xC4][..],                  // flags and signal, up to 22
        &[0, 0x11, 0x22, 7, 3, 0, 9, 9, 9], // the vendor's header and 3 bytes, up to 31
        &[0],                               // up to 32
        &17u64.to_le_bytes(),
    ];
    let bytes = header(&present, &fields.concat());
    let (radio, frame) = Radiotap::parse(&bytes).unwrap();
    assert_eq!((radio.tsft, radio.is_bad, frame.len()), (Some(17), true, 0));
    assert_eq!(radio.stamp(), Some(Stamp::Tsft(17)));
    // A second time counts for nothing.
    let twice = header(
        &[1 | MORE | ANEW, 1],
        &[[0; 4], [1, 0, 0, 0], [0; 4], [2, 0, 0, 0], [0; 4]].concat(),
    );
    assert_eq!(Radiotap::parse(&twice).unwrap().0.tsft, Some(1));
}

#[test]
fn what_stands_before_an_unknown_field_is_read() {
    let bytes = header(&[1 << 1 | 1 << 28], &[0x40, 9, 9, 9]);
    assert!(Radiotap::parse(&bytes).unwrap().0.is_bad);
    let bytes = header(&[1 << 1 | MORE, 1], &[0x40, 0, 0, 0]);
    assert!(Radiotap::parse(&bytes).unwrap().0.is_bad);
}

#[test]
fn what_is_no_header_is_an_error() {
    let parse = |bytes: &[u8]| Radiotap::parse(bytes).unwrap_err();
    assert_eq!(parse(&[]), RadiotapError::Cut);
    assert_eq!(parse(&[1, 0, 8, 0, 0, 0, 0, 0]), RadiotapError::Version(1));
    assert_eq!(parse(&[0, 0, 7, 0, 0, 0, 0, 0]), RadiotapError::Cut, "shorter than it can be");
    assert_eq!(parse(&[0, 0, 9, 0, 0, 0, 0, 0]), RadiotapError::Cut, "longer than the record");
    assert_eq!(parse(&header(&[MORE], &[])), RadiotapError::Cut, "a word that is not there");
}

#[test]
fn times_and_references_never_look_alike() {
    assert_ne!(Stamp::Reference(1).as_time(), Stamp::Tsft(1).as_time());
    assert_ne!(Stamp::Reference(0).as_time(), Stamp::Tsft(u64::MAX).as_time());
}
