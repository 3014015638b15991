//! A Wi-Fi cell: the 802.11 PHY and MAC in virtual time.
