//! Kernel TCP.
