//! Freshline's control laws.
#![no_std]

extern crate alloc;

pub mod age;
pub mod unit;
