//! The queues of a Wi-Fi device: mac80211 keeps a queue per station and traffic identifier (TXQ) behind
//! the queueing discipline, which is `noqueue` by default.
//!
//! ```text
//! ATTR_STA_INFO ─► STA_INFO_TID_STATS ─► one per TID ─► TID_STATS_TXQ_STATS ─► BACKLOG_PACKETS,
//!                                                        BACKLOG_BYTES, TX_PACKETS, TX_BYTES
//! ```
//!
//! `NL80211_CMD_GET_STATION` gives all of them, from `linux/nl80211.h`; no privilege is needed. The sum
//! over all stations and TIDs is the device's queue. TX_PACKETS counts packets that the driver has
//! taken out of the queue; packets in the network card are not visible.
//!
//! # Decisions
//!
//! - **On its own thread**: drivers may ask the card's firmware for other values of a station,
//!   which takes milliseconds. A look-up returns the newest answer and requests the next one.
//! - **At most every 5 ms** ([`EVERY`]), and only while look-ups continue; every second
//!   ([`BACK_OFF`]) after an answer without queues.
//! - **An answer older than 50 ms** ([`OLD`]) is not used: a queue may have filled or emptied
//!   since. So a program with less frequent look-ups does not see these queues.

use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use freshline_system::netlink::{GENERIC_HEADER, attributes, find, ne_u32};
use nix::net::if_::if_indextoname;

use super::discipline::QueueCounters;
use crate::clock::Clock;
use crate::nl80211::{NL80211_ATTR_STA_INFO, NL80211_CMD_NEW_STATION, Nl80211};

/// The minimum time between two requests.
const EVERY: Duration = Duration::from_millis(5);

/// The time to the next request after an answer without queues.
const BACK_OFF: Duration = Duration::from_secs(1);

/// An older answer is not used.
const OLD: Duration = Duration::from_millis(50);

const STA_INFO_TID_STATS: u16 = 31;
const TID_STATS_TXQ_STATS: u16 = 6;
const TXQ_STATS_BACKLOG_BYTES: u16 = 1;
const TXQ_STATS_BACKLOG_PACKETS: u16 = 2;
const TXQ_STATS_TX_BYTES: u16 = 9;
const TXQ_STATS_TX_PACKETS: u16 = 10;

/// The newest answer, and when it came: the sum over all stations, or `None` if they have no queue.
type Newest = Arc<Mutex<Option<(Instant, Option<QueueCounters>)>>>;

/// The queues of a device's stations, as far as they are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stations {
    /// Their sum, and when the kernel reported it.
    Queues(Instant, QueueCounters),
    /// Unknown at the moment: there is no answer yet, or the newest one is too old.
    Unknown,
    /// The device has none: it is not Wi-Fi, has no station, or its driver does not have these queues.
    Absent,
}

/// Asks for the queues of one Wi-Fi device.
#[derive(Debug)]
pub(super) struct StationQueues {
    /// Dropping it ends the thread.
    ask: SyncSender<()>,
    newest: Newest,
}

impl StationQueues {
    /// Starts the thread of requests; `None` if the device is not Wi-Fi or the thread cannot be
    /// started.
    pub(super) fn open(device: u32) -> Option<Self> {
        let name = if_indextoname(device).ok()?.into_string().ok()?;
        if !Path::new("/sys/class/net").join(name).join("phy80211").exists() {
            return None;
        }
        let newest = Newest::default();
        let (ask, asked) = sync_channel(1);
        let counters = Arc::clone(&newest);
        let mut nl80211 = None;
        let serve = move || serve(&asked, &counters, || answer(&mut nl80211, device));
        thread::Builder::new().name("nl80211".into()).spawn(serve).ok()?;
        Some(Self { ask, newest })
    }

    /// Returns the newest answer, and requests the next one.
    pub(super) fn look(&self, now: Instant) -> Stations {
        // A pending request is enough.
        let _ = self.ask.try_send(());
        match *self.newest.lock().unwrap_or_else(PoisonError::into_inner) {
            Some((at, Some(counters))) if now.saturating_duration_since(at) <= OLD => {
                Stations::Queues(at, counters)
            }
            None | Some((_, Some(_))) => Stations::Unknown,
            Some((_, None)) => Stations::Absent,
        }
    }
}

/// Answers requests until their sender is dropped.
fn serve(asked: &Receiver<()>, newest: &Newest, mut answer: impl FnMut() -> Option<QueueCounters>) {
    let clock = Clock::new();
    while asked.recv().is_ok() {
        let counters = answer();
        let at = clock.instant_of(clock.now());
        *newest.lock().unwrap_or_else(PoisonError::into_inner) = Some((at, counters));
        thread::sleep(if counters.is_some() { EVERY } else { BACK_OFF });
    }
}

/// Requests the queues, through a socket that is opened if needed, and returns the sum over all
/// stations.
fn answer(nl80211: &mut Option<Nl80211>, device: u32) -> Option<QueueCounters> {
    if nl80211.is_none() {
        *nl80211 = Nl80211::open().ok();
    }
    let Ok(stations) = nl80211.as_mut()?.stations(device, parse) else {
        // A list may be incomplete, which keeps its socket from starting another one.
        *nl80211 = None;
        return None;
    };
    stations.into_iter().reduce(|sum, queues| sum.and(&queues))
}

/// The queues of a station, from the message's header of generic netlink on; `None` if the message
/// has another content or no queue.
pub fn parse(message: &[u8]) -> Option<QueueCounters> {
    let body = message.get(GENERIC_HEADER..).filter(|_| message[0] == NL80211_CMD_NEW_STATION)?;
    let tids = find(find(body, NL80211_ATTR_STA_INFO)?, STA_INFO_TID_STATS)?;
    let queues = attributes(tids).filter_map(|(_, tid)| find(tid, TID_STATS_TXQ_STATS));
    queues.map(queue).reduce(|sum, queue| sum.and(&queue))
}

fn queue(stats: &[u8]) -> QueueCounters {
    let number = |kind| find(stats, kind).and_then(ne_u32).unwrap_or(0);
    QueueCounters {
        queued: number(TXQ_STATS_BACKLOG_PACKETS).into(),
        queued_bytes: number(TXQ_STATS_BACKLOG_BYTES).into(),
        left: number(TXQ_STATS_TX_PACKETS),
        left_bytes: number(TXQ_STATS_TX_BYTES).into(),
        is_noqueue: false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// An attribute, padded; nested ones are written one in the other.
    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = (4 + value.len() as u16).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn txq(backlog: [u32; 2], left: [u32; 2]) -> Vec<u8> {
        let [bytes, packets] = backlog;
        let [left_bytes, left_packets] = left;
        // As `nl80211_put_txq_stats` writes them, with the flows in between.
        [(1, bytes), (2, packets), (3, 7), (4, 0), (9, left_bytes), (10, left_packets)]
            .iter()
            .flat_map(|(kind, number)| attribute(*kind, &number.to_ne_bytes()))
            .collect()
    }

    /// `NL80211_CMD_NEW_STATION` of interface 3 with these queues, by TID from 0 on; the first
    /// attributes of each TID are counters of MSDUs.
    fn new_station(queues: &[Vec<u8>]) -> Vec<u8> {
        const NESTED: u16 = 0x8000;
        let tids: Vec<u8> = (1..)
            .zip(queues)
            .flat_map(|(tid, queue)| {
                let msdus = attribute(2, &99u64.to_ne_bytes());
                let stats = [msdus, attribute(6 | NESTED, queue)].concat();
                attribute(tid | NESTED, &stats)
            })
            .collect();
        let info = [attribute(1, &100u32.to_ne_bytes()), attribute(31 | NESTED, &tids)].concat();
        let mut message = vec![19, 1, 0, 0];
        message.extend(attribute(3, &3u32.to_ne_bytes()));
        message.extend(attribute(6, &[2, 0, 0, 0, 0, 1]));
        message.extend(attribute(21 | NESTED, &info));
        message
    }

    #[test]
    fn the_queues_of_a_station_are_the_sum_over_its_tids() {
        let queues = [txq([3000, 2], [15_000, 10]), txq([0, 0], [0, 0]), txq([100, 1], [200, 2])];
        let counters = parse(&new_station(&queues));
        let expected = QueueCounters {
            queued: 3,
            queued_bytes: 3100,
            left: 12,
            left_bytes: 15_200,
            is_noqueue: false,
        };
        assert_eq!(counters, Some(expected));
    }

    #[test]
    fn a_driver_without_queues_and_other_messages_say_nothing() {
        assert_eq!(parse(&new_station(&[])), None);
        let mut other = new_station(&[txq([3000, 2], [15_000, 10])]);
        other[0] = 20;
        assert_eq!(parse(&other), None);
    }

    #[test]
    fn cut_at_any_byte_it_says_less_but_nothing_else() {
        let whole = new_station(&[txq([3000, 2], [15_000, 10])]);
        for len in 0..whole.len() {
            assert_eq!(parse(&whole[..len]), None, "{len}");
        }
    }

    #[test]
    fn devices_that_are_not_wifi_have_no_stations() {
        let lo = nix::net::if_::if_nametoindex("lo").unwrap();
        assert!(StationQueues::open(lo).is_none());
        assert!(StationQueues::open(u32::MAX).is_none());
    }

    #[test]
    fn an_answer_is_used_while_it_is_new_and_the_thread_ends_with_its_sender() {
        let (ask, asked) = sync_channel(1);
        let queues = StationQueues { ask, newest: Newest::default() };
        let clock = Clock::new();
        let began = clock.instant_of(clock.now());
        assert_eq!(queues.look(began), Stations::Unknown);
        let (newest, counters) =
            (Arc::clone(&queues.newest), QueueCounters { queued: 3, ..QueueCounters::EMPTY });
        // The look-up has made a request; no other follows.
        let StationQueues { ask, .. } = queues;
        drop(ask);
        serve(&asked, &newest, || Some(counters));
        let (at, answer) = newest.lock().unwrap().unwrap();
        assert!(at >= began);
        assert_eq!(answer, Some(counters));
        let queues = StationQueues { ask: sync_channel(1).0, newest };
        for now in [began, at, at + OLD] {
            assert_eq!(queues.look(now), Stations::Queues(at, counters));
        }
        assert_eq!(queues.look(at + OLD + Duration::from_millis(1)), Stations::Unknown);
        // The absence of queues holds until the next answer.
        *queues.newest.lock().unwrap() = Some((at, None));
        assert_eq!(queues.look(at + BACK_OFF), Stations::Absent);
    }

    #[test]
    fn the_kernel_reports_no_queue_of_a_device_that_is_not_wifi() {
        let lo = nix::net::if_::if_nametoindex("lo").unwrap();
        assert_eq!(answer(&mut None, lo), None);
    }

    proptest! {
        #[test]
        fn any_message_is_read_without_harm(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            at in any::<prop::sample::Index>(),
            byte: u8,
        ) {
            let _ = parse(&bytes);
            let mut whole = new_station(&[txq([3000, 2], [15_000, 10]), txq([1, 1], [1, 1])]);
            let len = whole.len();
            whole[at.index(len)] = byte;
            let _ = parse(&whole);
        }
    }
}
