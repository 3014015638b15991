//! Limits of a discipline whose packets the kernel holds.

use freshline_core::router::{Limit, QdiscConfig};
use freshline_core::unit::Packets;

/// Lowers the limits of packets so that all queues of a discipline together hold at most `packets`;
/// returns whether a limit was lowered. Limits of bytes stay.
///
/// At its limit the kernel drops the newest packets, of any flow. A discipline with a higher limit
/// would never reach it, so it could not choose the flow to drop from.
pub(super) fn fit(queue: &mut QdiscConfig, packets: Packets) -> bool {
    match queue {
        QdiscConfig::Fifo { limit } | QdiscConfig::Lifo { limit } => fit_limit(limit, packets),
        QdiscConfig::Codel(params) => fit_limit(&mut params.limit, packets),
        QdiscConfig::Drr(params) => {
            // Each queue keeps its own limit, which alone does not bound their sum.
            let is_lowered = params.packets.is_none_or(|limit| limit > packets);
            params.packets = Some(params.packets.map_or(packets, |limit| limit.min(packets)));
            is_lowered
        }
        QdiscConfig::FqCodel(params) => lower(&mut params.limit, packets),
        QdiscConfig::Ifil(params) => lower(&mut params.limit, packets),
        QdiscConfig::Ifc(ifc) => fit_both(&mut ifc.aoi, &mut ifc.drop_averse, packets),
        QdiscConfig::Dual(dual) => fit_both(&mut dual.urgent, &mut dual.bulk, packets),
        QdiscConfig::Red(_) => false,
    }
}

/// Fits the two parts of a discipline. The first gets two thirds if both together hold too much: by
/// default freshness control holds 2000 updates and 1000 other packets.
fn fit_both(first: &mut QdiscConfig, second: &mut QdiscConfig, packets: Packets) -> bool {
    let third = Packets::new(packets.get() / 3);
    match (limit(first), limit(second)) {
        (Some(one), Some(other)) if one.get().saturating_add(other.get()) <= packets.get() => false,
        // A limit of bytes cannot be converted.
        _ => fit(first, packets - third) | fit(second, third),
    }
}

/// The maximum number of packets of a discipline, if it has such a limit.
fn limit(queue: &QdiscConfig) -> Option<Packets> {
    match queue {
        QdiscConfig::Fifo { limit } | QdiscConfig::Lifo { limit } => in_packets(*limit),
        QdiscConfig::Codel(params) => in_packets(params.limit),
        QdiscConfig::Drr(params) => params.packets,
        QdiscConfig::FqCodel(params) => Some(params.limit),
        QdiscConfig::Ifil(params) => Some(params.limit),
        QdiscConfig::Ifc(_) | QdiscConfig::Dual(_) | QdiscConfig::Red(_) => None,
    }
}

fn in_packets(limit: Limit) -> Option<Packets> {
    match limit {
        Limit::Packets(packets) => Some(packets),
        Limit::Bytes(_) => None,
    }
}

fn fit_limit(limit: &mut Limit, packets: Packets) -> bool {
    match limit {
        Limit::Packets(limit) => lower(limit, packets),
        Limit::Bytes(_) => false,
    }
}

fn lower(limit: &mut Packets, to: Packets) -> bool {
    let is_lowered = *limit > to;
    *limit = (*limit).min(to);
    is_lowered
}

#[cfg(test)]
mod tests {
    use super::*;
    use freshline_core::router::{FlowKey, Header, Packet, Qdisc};
    use freshline_core::unit::{Bytes, Time};
    use rand_pcg::Pcg64;
    use rand_pcg::rand_core::SeedableRng;

    const MOST: Packets = Packets::new(3072);

    struct Small {
        flow: u16,
    }

    impl Packet for Small {
        fn size(&self) -> Bytes {
            Bytes::new(64)
        }

        fn header(&self) -> Header {
            let flow = FlowKey { source_port: self.flow, ..FlowKey::default() };
            Header { flow, ..Header::default() }
        }
    }

    #[test]
    fn a_flood_does_not_fill_the_kernel_s_queue_and_others_keep_their_place() {
        for name in ["fq_codel", "drr"] {
            // One flood, and several.
            for floods in [1, 8] {
                let mut queue: QdiscConfig = name.parse().unwrap();
                assert!(fit(&mut queue, MOST));
                let mut built = queue.build(&mut Pcg64::seed_from_u64(1)).unwrap();
                let mut dropped = [0; 10];
                let mut count = |drop: freshline_core::router::Drop<Small>| {
                    dropped[usize::from(drop.packet.flow)] += 1;
                };
                for n in 0..20_000 {
                    built.enqueue(Time::ZERO, Small { flow: n % floods }, &mut count);
                    if n % 1000 == 0 {
                        built.enqueue(Time::ZERO, Small { flow: 9 }, &mut count);
                    }
                    assert!(built.backlog().packets <= MOST, "{name}");
                }
                assert!(dropped[0] > 0 && dropped[9] == 0, "{name}: {dropped:?}");
            }
        }
    }

    #[test]
    fn limits_are_lowered_only_where_they_do_not_fit() {
        let fitted = |text: &str| {
            let mut queue: QdiscConfig = text.parse().unwrap();
            (fit(&mut queue, MOST), queue)
        };
        for text in ["ifc", "ifil", "fifo", "lifo", "red", "codel", "100p", "64kB"] {
            assert_eq!(fitted(text), (false, text.parse().unwrap()), "{text}");
        }
        assert_eq!(fitted("5000p"), (true, "3072p".parse().unwrap()));
        let (is_lowered, dual) = fitted("dual");
        let QdiscConfig::Dual(dual) = dual else { panic!("{dual}") };
        assert_eq!((is_lowered, limit(&dual.bulk)), (true, Some(Packets::new(1024))));
    }
}
