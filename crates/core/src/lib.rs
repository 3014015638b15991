//! Freshline's control laws.
#![no_std]

extern crate alloc;

pub mod unit;
pub mod wire;
