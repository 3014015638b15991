//! A client without a server.

use super::*;

fn client(vias: usize) -> Result<Client, BondError> {
    let dir = tempfile::tempdir().unwrap();
    let identity = Identity::from_state_dir(dir.path()).unwrap();
    Client::bind(ClientConfig {
        server: "127.0.0.1:9".parse::<SocketAddr>().unwrap().into(),
        server_name: "localhost".into(),
        trust: Trust::Pinned(identity.fingerprint()),
        identity,
        vias: (0..vias).map(|number| Via::from(format!("none{number}").as_str()).into()).collect(),
        sending: Sending::default(),
        listen: Vec::new(),
    })
}

#[test]
fn more_vias_than_paths_are_refused() {
    assert!(client(8).is_ok());
    let error = client(9).err().unwrap();
    assert!(matches!(error, BondError::TooManyVias { given: 9, max: 8 }), "{error}");
}

#[test]
fn refusals_are_followed_by_ever_longer_waits_and_a_lasting_connection_by_none() {
    let mut client = client(0).unwrap();
    let mut now = client.driver.clock.now();
    for expected in [250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000] {
        client.back_off(now);
        let wait = client.dial_at.since(now);
        let least = Span::from_millis(expected);
        assert!(least <= wait && wait <= least + least / 2, "{wait}, not {least}");
        now = client.dial_at;
    }
    // The connection ended at once.
    client.ready_at = Some(now);
    client.back_off(now + Span::from_secs(1));
    assert!(client.dial_at.since(now) > Span::from_secs(30));
    let now = client.dial_at;
    client.ready_at = Some(now);
    client.back_off(now + LASTING);
    assert_eq!(client.dial_at, now, "it connects again at once");
}
