//! Paths that carry packets of different sizes.

use super::*;

fn world(paths: usize) -> World {
    let scheduler = || Sending::default().scheduler.build().unwrap();
    World::carrying(u16::MAX, paths, scheduler(), scheduler(), Sending::default())
}

#[test]
fn probes_that_a_device_refuses_leave_alone_while_data_leaves_in_trains() {
    let mut world = world(2);
    assert_eq!(world.upload(20_000_000, Duration::from_secs(60)), 20_000_000);
    assert!(world.sent.iter().any(|sent| sent.train > 1));
    let is_refused = |sent: &&SentPacket| sent.size > world.payloads[sent.path];
    let refused: Vec<_> = world.sent.iter().filter(is_refused).collect();
    assert!(!refused.is_empty() && refused.iter().all(|sent| sent.train == 1));
}

#[test]
fn paths_that_carry_less_than_before_recover() {
    for paths in [1, 2] {
        let mut world = world(paths);
        world.payloads = [u16::MAX.into(); 2];
        world.run(Duration::from_secs(20));
        world.payloads = [config::USUAL_PAYLOAD.into(); 2];
        assert_eq!(world.upload(1_000_000, Duration::from_secs(5)), 1_000_000, "{paths} paths");
    }
}

#[test]
fn datagrams_too_large_for_a_new_path_take_the_other_one() {
    // How long the queued datagrams take from a slow path with large packets.
    let lasts = |has_new_path| {
        let mut world = world(1);
        world.delays = [Duration::from_millis(30), Duration::from_millis(3)];
        world.run(Duration::from_secs(20));
        let (began_at, link) = (world.now, world.link(CLIENT));
        let mut datagrams = link.connection.datagrams();
        let most = datagrams.max_size().unwrap();
        let count = 120 * 1024 / most;
        for _ in 0..count {
            datagrams.send(vec![7; most].into(), false).unwrap();
        }
        if has_new_path {
            let network = FourTuple::new(SERVER, Some(home(1)));
            link.connection.open_path(network, PathStatus::Available, began_at).unwrap();
        }
        let mut got = 0;
        while got < count {
            assert!(world.now - began_at < Duration::from_secs(5));
            world.run(Duration::from_millis(1));
            let link = world.link(FAR);
            got += std::iter::from_fn(|| link.connection.datagrams().recv()).count();
        }
        world.now - began_at
    };
    let (alone, both) = (lasts(false), lasts(true));
    assert!(both <= alone + Duration::from_millis(20), "{both:?} instead of {alone:?}");
}
