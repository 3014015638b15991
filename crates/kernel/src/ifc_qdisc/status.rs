//! Reads the counters of the discipline from its maps, as the report that all routers share.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv6Addr, SocketAddr};

use freshline_core::link::SpanHistogram;
use freshline_core::router::{
    AccountReport, BacklogReport, Class, ClassReport, FlowReport, KernelDropsReport, RecentRate,
    RouterReport, UnshapedReport,
};
use freshline_core::unit::{BitRate, Bytes, Span, Time};
use libbpf_rs::{MapCore, MapFlags, MapHandle};

use super::{ABOUT, BOOKS, FLOWS, SETTINGS, SOJOURNS, Settings, open, read};
use crate::device::Device;
use crate::error::KernelError;
use crate::maps::numbers;
use crate::pin::Folder;

/// The time since the start of the host, in s.
const UPTIME: &str = "/proc/uptime";
/// The resolution of [`UPTIME`], and so the minimum time over which a rate is reported.
const UPTIME_STEP: Span = Span::from_millis(10);
/// The row of link control packets, after the rows of the classes (`OTHER`).
const OTHER: usize = 2;
/// The number of numbers in a `struct account`.
const ACCOUNT: usize = 15;
/// The buckets of sojourn times: `SOJOURN_BITS` and `SOJOURN_BUCKETS` of `law.h`.
const SOJOURN_CUTS: u64 = 16;
const SOJOURN_BUCKETS: u32 = 592;
/// The wider buckets per flow: `FLOW_SOJOURN_JOINS`, `FLOW_SOJOURN_SKIPS` and
/// `FLOW_SOJOURN_BUCKETS`.
const JOINS: u64 = 4;
const SKIPS: u64 = 43;
const FLOW_SOJOURN_BUCKETS: usize = 81;
/// The number of rows of flows per read.
const READ_AT_ONCE: u32 = 256;
/// The size of a `struct flow` in bytes, and indices in the numbers after it in a `struct
/// flow_account`.
const FLOW: usize = 40;
const NUMBER: usize = 0;
const BYTES_IN: usize = 5;
const FIRST_NS: usize = 11;
const SOJOURNS_OF_FLOW: usize = 15;
/// The maximum number of packets on the link, and of queued link control packets (`MAX_OTHER`).
const OTHERS: u64 = 1 + 64;

/// A `struct account` of `intf.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Account {
    packets_in: u64,
    bytes_in: u64,
    packets_out: u64,
    bytes_out: u64,
    replaced: u64,
    queue_full: u64,
    congestion: u64,
    vanished: u64,
    waiting_packets: u64,
    waiting_bytes: u64,
    recent: RecentRate,
}

/// Whether the discipline is at the root of its device.
pub(super) fn is_in_place(folder: &Folder) -> bool {
    about(folder).is_ok_and(|[is_in_place, ..]| is_in_place == 1)
}

/// Whether it is certainly not there. The answer is unknown for another version's discipline.
pub(super) fn is_out_of_place(folder: &Folder) -> bool {
    match about(folder) {
        Ok([is_in_place, ..]) => is_in_place != 1,
        Err(_) => !folder.at(ABOUT).exists(),
    }
}

/// A `struct about`.
fn about(folder: &Folder) -> Result<[u64; 4], KernelError> {
    numbers(&read(&open(folder, ABOUT)?)?).try_into().map_err(|_| KernelError::OtherVersion)
}

/// Its settings.
pub(super) fn settings(map: &MapHandle) -> Result<Settings, KernelError> {
    Settings::from_numbers(numbers(&read(map)?)).ok_or(KernelError::OtherVersion)
}

/// The full report, with at most `most` flows.
pub(super) fn report(
    folder: &Folder,
    device: &Device,
    most: usize,
) -> Result<RouterReport, KernelError> {
    let [_, since_boot_ns, flows_begun, _] = about(folder)?;
    let (start, now) = (Time::from_nanos(since_boot_ns), uptime()?);
    let settings = settings(&open(folder, SETTINGS)?)?;
    let books = numbers(&read(&open(folder, BOOKS)?)?);
    let [aoi, drop_averse, others] =
        [Class::Aoi as usize, Class::DropAverse as usize, OTHER].map(|row| account(&books, row));
    let accounts = [aoi?, drop_averse?];
    let others = others?;
    let sent = accounts.map(|account| account.bytes_out as f64);
    let all_sent: f64 = sent.iter().sum();
    let backlog_of = |of: fn(&Account) -> u64| accounts.iter().chain([&others]).map(of).sum();
    let (flows, kept) = flows(&open(folder, FLOWS)?, now, most)?;
    let sojourns = open(folder, SOJOURNS)?;
    let class = |class: Class| {
        let account = &accounts[class as usize];
        let rate_bps = account.recent.rate_bps(UPTIME_STEP, start, now);
        class_report(&sojourns, class, account, rate_bps)
    };
    Ok(RouterReport {
        device: device.name.clone(),
        duration_s: now.since(start).as_secs_f64(),
        queue: "ifc".to_owned(),
        rate_bps: settings.rate().map(BitRate::as_bps),
        aoi_share: Some(settings.aoi_share()),
        served_share: (all_sent > 0.0).then(|| sent[0] / all_sent),
        super_packets: settings.rate().map_or("whole", |_| "interleaved").to_owned(),
        backlog: BacklogReport {
            packets: backlog_of(|account| account.waiting_packets),
            bytes: backlog_of(|account| account.waiting_bytes),
            limit: Some(
                u64::from(settings.max_flows()) + u64::from(settings.max_packets()) + OTHERS,
            ),
        },
        classes: vec![class(Class::Aoi)?, class(Class::DropAverse)?],
        flows,
        flows_evicted: flows_begun.saturating_sub(kept),
        kernel_drops: KernelDropsReport {
            queue_full: others.queue_full,
            flushed: backlog_of(|account| account.vanished),
            ..KernelDropsReport::default()
        },
        failures: 0,
        unshaped: UnshapedReport::default(),
    })
}

/// The present time, by the clock that includes the time in suspend.
fn uptime() -> Result<Time, KernelError> {
    let text = fs::read_to_string(UPTIME).map_err(KernelError::file("read", UPTIME))?;
    let seconds = text.split(' ').next().and_then(|seconds| seconds.parse().ok());
    Ok(Time::ZERO + Span::from_secs_f64(seconds.unwrap_or_default()))
}

/// From a `struct recent` of `recent.h`.
fn recent([began_ns, now, before]: [u64; 3]) -> RecentRate {
    RecentRate::from_counts(Time::from_nanos(began_ns), Bytes::new(now), Bytes::new(before))
}

/// The count of one bucket.
fn sojourn_count(sojourns: &MapHandle, key: u32) -> Result<u64, KernelError> {
    let value = sojourns
        .lookup(&key.to_ne_bytes(), MapFlags::ANY)
        .map_err(KernelError::bpf("read the times in the queue"))?;
    Ok(numbers(&value.unwrap_or_default()).first().copied().unwrap_or_default())
}

fn account(books: &[u64], row: usize) -> Result<Account, KernelError> {
    let row = books.chunks_exact(ACCOUNT).nth(row);
    row.and_then(account_from).ok_or(KernelError::OtherVersion)
}

/// Packets on the link are reported as queued.
fn account_from(numbers: &[u64]) -> Option<Account> {
    let [
        packets_in,
        bytes_in,
        packets_out,
        bytes_out,
        replaced,
        queue_full,
        congestion,
        vanished,
        waiting_packets,
        waiting_bytes,
        on_link_packets,
        on_link_bytes,
        ref of_recent @ ..,
    ] = *numbers
    else {
        return None;
    };
    Some(Account {
        packets_in,
        bytes_in,
        packets_out,
        bytes_out,
        replaced,
        queue_full,
        congestion,
        vanished,
        waiting_packets: waiting_packets + on_link_packets,
        waiting_bytes: waiting_bytes + on_link_bytes,
        recent: recent(of_recent.try_into().ok()?),
    })
}

fn class_report(
    sojourns: &MapHandle,
    class: Class,
    account: &Account,
    rate_bps: u64,
) -> Result<ClassReport, KernelError> {
    let mut histogram = SpanHistogram::new();
    for bucket in 0..SOJOURN_BUCKETS {
        let key = class as u32 * SOJOURN_BUCKETS + bucket;
        histogram.record_times(sojourn_count(sojourns, key)?, middle(bucket.into()));
    }
    let [sojourn_p50_ms, sojourn_p95_ms] = quantiles_ms(&histogram);
    let account = AccountReport {
        packets_in: account.packets_in,
        bytes_in: account.bytes_in,
        packets_out: account.packets_out,
        bytes_out: account.bytes_out,
        rate_bps: Some(rate_bps),
        replaced: account.replaced,
        queue_full: account.queue_full,
        congestion: account.congestion,
        sojourn_p50_ms,
        sojourn_p95_ms,
        ..AccountReport::default()
    };
    Ok(ClassReport { class: class.name().to_owned(), account })
}

/// Median and 95th percentile, if anything was counted.
fn quantiles_ms(histogram: &SpanHistogram) -> [Option<f64>; 2] {
    [0.5, 0.95].map(|q| (histogram.count() > 0).then(|| histogram.quantile(q).as_millis_f64()))
}

/// The lower bound of a bucket of `sojourn_bucket`, in ns.
fn lower(bucket: u64) -> u64 {
    let shift = (bucket / SOJOURN_CUTS).saturating_sub(1);
    (bucket - shift * SOJOURN_CUTS) << shift
}

fn middle(bucket: u64) -> Span {
    Span::from_nanos((lower(bucket) + lower(bucket + 1)) / 2)
}

/// The middle of a bucket of `flow_sojourn_bucket`.
fn middle_of_joint(bucket: u64) -> Span {
    let [from, to] = [bucket, bucket + 1].map(|bucket| match bucket {
        0 => 0,
        _ => lower((bucket + SKIPS) * JOINS),
    });
    Span::from_nanos((from + to) / 2)
}

/// The `most` flows with the highest recent rates, in descending order, and silent flows after them
/// by their bytes; and the number of all flows in the map.
fn flows(map: &MapHandle, now: Time, most: usize) -> Result<(Vec<FlowReport>, u64), KernelError> {
    let rows = map
        .lookup_batch(READ_AT_ONCE, MapFlags::ANY, MapFlags::ANY)
        .map_err(KernelError::bpf("read the flows"))?;
    let found = rows.filter_map(|(_, value)| {
        let (flow, rest) = value.split_at_checked(FLOW)?;
        Some((flow.to_owned(), numbers(rest))).filter(|(_, rest)| rest.get(NUMBER) != Some(&0))
    });
    // A flow that loses its row during the read and gets another one may be read twice.
    let mut flows = each_once(found.collect());
    let kept = flows.len() as u64;
    flows.sort_by_cached_key(|(_, numbers)| {
        let rate = rate_of_flow(numbers, RecentRate::RANK_TIME, now);
        Reverse((rate, numbers.get(BYTES_IN).copied()))
    });
    flows.truncate(most);
    Ok((flows.iter().filter_map(|(key, numbers)| flow(key, numbers, now)).collect(), kept))
}

/// The newest reading of each flow.
fn each_once(flows: Vec<(Vec<u8>, Vec<u64>)>) -> Vec<(Vec<u8>, Vec<u64>)> {
    BTreeMap::from_iter(flows).into_iter().collect()
}

/// The recent rate of a flow in bit/s, over at least `min`.
fn rate_of_flow(numbers: &[u64], min: Span, now: Time) -> Option<u64> {
    let [first_ns, counts @ ..] = *numbers.get(FIRST_NS..)?.first_chunk::<4>()?;
    Some(recent(counts).rate_bps(min, Time::from_nanos(first_ns), now))
}

/// The report of a flow, from its `struct flow` and the numbers after it in its `struct
/// flow_account`.
fn flow(key: &[u8], numbers: &[u64], now: Time) -> Option<FlowReport> {
    let (source, rest) = key.split_first_chunk::<16>()?;
    let (destination, rest) = rest.split_first_chunk::<16>()?;
    let [a, b, c, d, protocol, ..] = *rest else { return None };
    let (totals, sojourns) = numbers.split_first_chunk::<SOJOURNS_OF_FLOW>()?;
    let [
        _number,
        _last_ns,
        class,
        _stream,
        packets_in,
        bytes_in,
        packets_out,
        bytes_out,
        replaced,
        queue_full,
        congestion,
        ..,
    ] = *totals;
    if sojourns.len() != FLOW_SOJOURN_BUCKETS {
        return None;
    }
    let mut histogram = SpanHistogram::new();
    for (bucket, count) in (0..).zip(sojourns) {
        histogram.record_times(*count, middle_of_joint(bucket));
    }
    let [sojourn_p50_ms, sojourn_p95_ms] = quantiles_ms(&histogram);
    let class = if class == Class::Aoi as u64 { Class::Aoi } else { Class::DropAverse };
    Some(FlowReport {
        class: class.name().to_owned(),
        source: end(*source, u16::from_ne_bytes([a, b])),
        destination: end(*destination, u16::from_ne_bytes([c, d])),
        protocol,
        account: AccountReport {
            packets_in,
            bytes_in,
            packets_out,
            bytes_out,
            rate_bps: rate_of_flow(numbers, UPTIME_STEP, now),
            replaced,
            queue_full,
            congestion,
            sojourn_p50_ms,
            sojourn_p95_ms,
            ..AccountReport::default()
        },
    })
}

fn end(address: [u8; 16], port: u16) -> String {
    match (Ipv6Addr::from(address).to_canonical(), port) {
        (address, 0) => address.to_string(),
        (address, port) => SocketAddr::new(address, port).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_is_told_as_every_router_tells_it() {
        let mut key = [0; 40];
        key[10..16].copy_from_slice(&[0xff, 0xff, 10, 0, 0, 1]);
        key[16..32].copy_from_slice(&Ipv6Addr::LOCALHOST.octets());
        key[32..34].copy_from_slice(&5000_u16.to_ne_bytes());
        key[36] = 17;
        let mut numbers = [0; SOJOURNS_OF_FLOW + FLOW_SOJOURN_BUCKETS];
        // 500 bytes in the half second since its first packet.
        let (first, now) = (10_000_000_000, Time::from_nanos(10_500_000_000));
        let recent = [first, first, 500, 0];
        let totals = [&[1, first, 0, 0, 7, 700, 5, 500, 2, 0, 0], &recent[..]].concat();
        numbers[..SOJOURNS_OF_FLOW].copy_from_slice(&totals);
        // From 16.4 us to 20.5 us.
        numbers[SOJOURNS_OF_FLOW + 1] = 5;
        let told = flow(&key, &numbers, now).unwrap();
        assert_eq!((told.source.as_str(), told.destination.as_str()), ("10.0.0.1:5000", "::1"));
        assert_eq!((told.class.as_str(), told.protocol), ("aoi", 17));
        assert_eq!((told.account.packets_in, told.account.replaced), (7, 2));
        assert_eq!(told.account.sojourn_p95_ms, Some(0.018432));
        assert_eq!(told.account.rate_bps, Some(8000));
        let of = |key: &[u8], numbers: &[u64]| flow(key, numbers, now).map(|flow| flow.protocol);
        assert_eq!(of(&key[..39], &numbers), Some(17));
        assert_eq!((of(&key, &numbers[1..]), of(&key[..36], &numbers)), (None, None));
    }

    #[test]
    fn a_flow_that_is_read_twice_is_told_once() {
        let (one, other) = (vec![1; 40], vec![2; 40]);
        let read = vec![(one.clone(), vec![1]), (other.clone(), vec![5]), (one.clone(), vec![2])];
        assert_eq!(each_once(read), [(one, vec![2]), (other, vec![5])]);
    }

    #[test]
    fn buckets_are_read_at_their_middle() {
        assert_eq!([0, 15, 16, 31].map(middle).map(Span::as_nanos), [0, 15, 16, 31]);
        assert_eq!(middle(32).as_nanos(), 33);
        let last = middle(u64::from(SOJOURN_BUCKETS) - 1).as_nanos();
        assert!(last < 1 << 40 && last > (1 << 40) - (1 << 36), "{last}");
    }
}
