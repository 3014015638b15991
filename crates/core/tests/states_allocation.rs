//! Once its buffers have grown, a source of large states allocates nothing.

#[path = "common/counting.rs"]
mod counting;

use counting::allocations;
use freshline_core::state::{AVAILABLE, Encoder, Outgoing, Transfer};
use freshline_core::unit::Time;

/// Sends a state whole, loses every third symbol and sends these again.
fn send(transfer: &mut Transfer, encoder: &mut Encoder, number: u64, bytes: &[u8]) {
    let repair = if AVAILABLE { 9 } else { 0 };
    let generated_at = Time::from_nanos(number);
    let outgoing = Outgoing { number, generated_at, symbol_len: 1_200, repair, bytes };
    transfer.reset(&outgoing).expect("a layout");
    while let Some(index) = transfer.next_data().or_else(|| transfer.next_repair()) {
        assert!(transfer.symbol(index, encoder).is_some());
        transfer.on_sent(index);
    }
    for index in 0..transfer.layout().symbols() {
        if index % 3 == 0 { transfer.on_lost(index) } else { transfer.on_acked(index) }
    }
    while let Some(index) = transfer.next_lost() {
        transfer.on_sent(index);
        transfer.on_acked(index);
    }
    assert!(transfer.is_complete());
}

#[test]
fn steady_sending_allocates_nothing() {
    let bytes: Vec<u8> = (0..100_001u32).map(|at| at as u8).collect();
    let mut encoder = Encoder::new();
    let outgoing = Outgoing {
        number: 0,
        generated_at: Time::ZERO,
        symbol_len: 1_200,
        repair: 0,
        bytes: &bytes,
    };
    let mut transfer = Transfer::new(&outgoing).expect("a layout");
    send(&mut transfer, &mut encoder, 1, &bytes);
    let before = allocations();
    (2..10).for_each(|number| send(&mut transfer, &mut encoder, number, &bytes));
    // Shorter states, and again one of the maximum length.
    send(&mut transfer, &mut encoder, 10, &bytes[..50_000]);
    send(&mut transfer, &mut encoder, 11, &bytes);
    assert_eq!(allocations() - before, 0);
}
