//! Map values that are rows of 64-bit numbers.

use libbpf_rs::{MapCore, MapFlags};

/// The numbers of a row.
pub(crate) fn numbers(value: &[u8]) -> Vec<u64> {
    let words = value.chunks_exact(8);
    words.map(|word| u64::from_ne_bytes(word.try_into().expect("8 bytes"))).collect()
}

/// The sums, over all processors, of a per-processor row of `N` numbers.
pub(crate) fn sums<const N: usize>(map: &impl MapCore, key: u32) -> libbpf_rs::Result<[u64; N]> {
    let mut sums = [0; N];
    for row in map.lookup_percpu(&key.to_ne_bytes(), MapFlags::ANY)?.into_iter().flatten() {
        for (sum, number) in sums.iter_mut().zip(numbers(&row)) {
            *sum += number;
        }
    }
    Ok(sums)
}
