//! Commands that the queueing disciplines of an interface allow: they never undo or repeat a
//! configuration.

use super::observation::Interface;
use super::words::quoted;

/// Disciplines that do nothing but queue.
const FIFOS: [&str; 3] = ["pfifo_fast", "pfifo", "bfifo"];
/// Disciplines that isolate flows.
const FAIR: [&str; 3] = ["fq_codel", "cake", "fq"];
/// Disciplines with classes, whose meaning is unknown here.
const CLASSFUL: [&str; 8] = ["htb", "hfsc", "drr", "qfq", "prio", "ets", "mqprio", "taprio"];
/// The major number of the HTB of `freshline uplink attach --rate`, which may attach again.
const OURS: u16 = 0x50c0;

fn is_fifo(kind: &str) -> bool {
    FIFOS.contains(&kind)
}

/// Whether the root may be replaced: it does not shape and has no classes.
pub(super) fn is_replaceable(interface: &Interface) -> bool {
    let kind = interface.discipline.as_str();
    // The kernel gives no handle to disciplines that it attaches itself (net.core.default_qdisc).
    let is_default = interface.discipline_major == 0 && FAIR.contains(&kind);
    is_fifo(kind) || matches!(kind, "noqueue" | "mq" | "fq") || is_default
}

/// Whether `freshline uplink attach --rate` may set up its bands.
pub(super) fn takes_bands(interface: &Interface) -> bool {
    is_replaceable(interface)
        || (interface.discipline == "htb" && interface.discipline_major == OURS)
}

/// The place for FQ-CoDel in the syntax of `tc`; `None` if flows are isolated already, or if there
/// is a discipline of unknown purpose.
pub(super) fn place_of_fq_codel(interface: &Interface) -> Option<String> {
    let name = quoted(&interface.name);
    let has_fifos = interface.leaves.iter().all(|kind| is_fifo(kind));
    match interface.discipline.as_str() {
        "tbf" if has_fifos => Some(format!("dev {name} parent {:x}:1", interface.discipline_major)),
        "mq" if has_fifos => Some(format!("dev {name} root")),
        kind if is_fifo(kind) || kind == "noqueue" => Some(format!("dev {name} root")),
        _ => None,
    }
}

/// Why there is no command; `None` if there is one. `is_own` is true for a queue of this host.
pub(super) fn note(interface: &Interface, is_own: bool) -> Option<&'static str> {
    let kind = interface.discipline.as_str();
    let is_possible =
        if is_own { place_of_fq_codel(interface).is_some() } else { takes_bands(interface) };
    match () {
        () if is_possible => None,
        () if is_own && CLASSFUL.contains(&kind) => {
            Some("the root discipline has classes; change the class that queues")
        }
        () if is_own
            && (FAIR.contains(&kind)
                || interface.leaves.iter().any(|leaf| FAIR.contains(&leaf.as_str()))) =>
        {
            Some("the discipline isolates flows already, so a flow that queues delays itself")
        }
        () => Some(
            "no command replaces the root discipline of this interface, because it may have \
             been configured; if it was not, put a shaper there: `freshline uplink attach --rate`, or CAKE",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(discipline: &str, leaves: &[&str]) -> Interface {
        Interface {
            name: "eth0".to_owned(),
            discipline: discipline.to_owned(),
            discipline_major: 0x8001,
            leaves: leaves.iter().map(|&kind| kind.to_owned()).collect(),
            ..Interface::default()
        }
    }

    #[test]
    fn only_roots_without_a_configuration_are_replaced() {
        for (kind, leaves, place, is_open) in [
            ("pfifo_fast", &[][..], Some("dev eth0 root"), true),
            ("noqueue", &[], Some("dev eth0 root"), true),
            ("mq", &["pfifo_fast", "pfifo_fast"], Some("dev eth0 root"), true),
            ("mq", &["fq_codel", "fq_codel"], None, true),
            ("fq", &[], None, true),
            ("fq_codel", &[], None, false),
            ("cake", &[], None, false),
            ("tbf", &[], Some("dev eth0 parent 8001:1"), false),
            ("tbf", &["fq_codel"], None, false),
            ("htb", &["pfifo"], None, false),
            ("prio", &[], None, false),
            ("netem", &[], None, false),
        ] {
            let interface = interface(kind, leaves);
            assert_eq!(place_of_fq_codel(&interface).as_deref(), place, "{kind} {leaves:?}");
            assert_eq!(takes_bands(&interface), is_open, "{kind}");
            assert_eq!(note(&interface, true).is_none(), place.is_some(), "{kind} {leaves:?}");
            assert_eq!(note(&interface, false).is_none(), is_open, "{kind}");
        }
        let default = Interface { discipline_major: 0, ..interface("fq_codel", &[]) };
        assert!(takes_bands(&default) && place_of_fq_codel(&default).is_none());
        let ours = Interface { discipline_major: OURS, ..interface("htb", &[]) };
        assert!(takes_bands(&ours) && !is_replaceable(&ours));
    }
}
