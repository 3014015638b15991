//! Freshline's control laws.
#![no_std]

extern crate alloc;

pub mod link;
pub mod router;
pub mod unit;
