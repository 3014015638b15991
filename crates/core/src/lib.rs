//! Freshline's control laws.
#![no_std]

extern crate alloc;

pub mod age;
pub mod link;
pub mod router;
pub mod session;
pub mod source;
pub mod unit;
pub mod wire;
