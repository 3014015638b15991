//! Bytes that a monitor holds for each source, its share of the tables of parties included.
//!
//! Unsafe: only an allocator sees allocations, and implementing one is unsafe; it hands each call on to the
//! system's.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use freshline_core::session::{Admission, Clocked, Monitor, MonitorParams, Origin, Secret};
use freshline_core::unit::Time;
use freshline_core::wire::{Ack, Cookie, Opening, SessionId, Update};

static HELD: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, which counts the bytes that are held.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: each call goes on to the system's allocator with the arguments as they came.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(memory, layout) }
    }
}

const SOURCES: u64 = 10_000;

/// Sources with names of 16 bytes and payloads of 64; the number of an address is that of its network.
fn bytes_per_source(origin: fn(&u64) -> Origin) -> usize {
    let before = HELD.load(Ordering::Relaxed);
    let params = MonitorParams {
        admission: Admission::Proven,
        max_sources: SOURCES as usize,
        ..MonitorParams::default()
    };
    let mut monitor = Monitor::new(params, Secret::new([7; 16])).with_origin(origin);
    let (mut datagram, mut reply) = ([0; 300], [0; Ack::LEN]);
    for session in 0..SOURCES {
        let name = format!("{session:016}");
        let opening = Opening { cookie: Cookie::default(), name: &name, token: b"" };
        let update = Update {
            session: SessionId(session),
            seq: 0,
            generated_at: Time::ZERO,
            clock_offset: None,
            wants_ack: false,
            ack_mark: None,
            opening: Some(opening),
            payload: &[7; 64],
        };
        let len = update.write(&mut datagram).expect("it fits");
        let at = Clocked { received_at: Time::ZERO, now: Time::ZERO };
        monitor.on_datagram(at, session, &datagram[..len], &mut reply);
    }
    assert_eq!(monitor.len(), SOURCES as usize);
    (HELD.load(Ordering::Relaxed) - before) / SOURCES as usize
}

#[test]
fn a_source_takes_little_memory_also_if_it_is_alone_in_its_network() {
    let together = bytes_per_source(|_| Origin::default());
    let alone =
        bytes_per_source(|address| Origin { owner: 0, network: *address, address: *address });
    println!("{together} bytes per source of one address, {alone} if each has its own network");
    assert!(together < 300 + 64, "{together}");
    assert!(alone < 550 + 64, "{alone}");
}
