//! TCP in virtual time.
