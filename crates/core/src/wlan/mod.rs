//! Wi-Fi: the access point and its stations.

pub mod mac;
