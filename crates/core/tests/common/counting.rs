//! Number of allocations of this thread, and of the bytes that it holds, counted by the global
//! allocator of the test that includes this.
//!
//! Unsafe: only an allocator sees allocations, and implementing one is unsafe; it forwards each
//! call to the system's.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Allocations of this thread: other tests run at the same time.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    /// Bytes that it has allocated and not freed.
    static HELD: Cell<isize> = const { Cell::new(0) };
}

fn hold(bytes: isize) {
    HELD.set(HELD.get() + bytes);
}

/// The system's allocator, which counts.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: each call goes on to the system's allocator with the arguments as they came.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        hold(layout.size().cast_signed());
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        hold(-layout.size().cast_signed());
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        hold(size.cast_signed() - layout.size().cast_signed());
        // SAFETY: as the caller promises.
        unsafe { System.realloc(memory, layout, size) }
    }
}

/// Bytes that this thread holds.
#[allow(dead_code, reason = "not each test asks for it")]
pub(crate) fn held() -> isize {
    HELD.get()
}

/// How often so far.
#[allow(dead_code, reason = "not each test asks for it")]
pub(crate) fn allocations() -> u64 {
    ALLOCATIONS.get()
}
