//! Which paths of a connection answer: asks silent paths for an answer, and closes dead ones.

use std::time::{Duration, Instant};

use noq_proto::{Connection, FrameStats, PathStatus, VarInt};

use super::{Path, Paths};

/// A path that is silent for this long while another is heard is asked for an answer.
const QUIET: Duration = Duration::from_millis(150);

/// A path that is being opened must answer within this time, or within three round-trip times of
/// the slowest other path if that is longer, as the paths may share a long link.
const OPEN_TIMEOUT: Duration = Duration::from_secs(3);

/// While no path is heard, each is asked for an answer this often: noq-proto's own probes become
/// rarer with time, which would prolong an outage.
const PROBE: Duration = Duration::from_secs(1);

/// After a pause of this process of this length, all paths look silent, although they had no time
/// to answer.
const PAUSE: Duration = Duration::from_millis(500);

/// Without data for this long, a connection is idle, and its paths are kept alive less often.
const IDLE: Duration = Duration::from_secs(10);

/// An active path sends at least this often, so that a dead one is found before it is needed.
const KEEP_ALIVE: Duration = Duration::from_secs(1);

impl Paths {
    /// Asks paths for an answer that have fallen silent while others are heard.
    pub(super) fn listen(&mut self, connection: &mut Connection, now: Instant) {
        for path in &mut self.paths {
            let Some(stats) = connection.path_stats(path.id) else { continue };
            if stats.udp_rx.datagrams != path.received {
                path.received = stats.udp_rx.datagrams;
                (path.heard_at, path.was_asked) = (Some(now), false);
            }
        }
        let is_recent = |at: Instant| now.saturating_duration_since(at) < QUIET;
        if !self.paths.iter().any(|path| path.heard_at.is_some_and(is_recent)) {
            return;
        }
        for path in self.paths.iter_mut().filter(|path| path.is_established && !path.was_asked) {
            if path.heard_at.is_some_and(|at| !is_recent(at)) {
                path.was_asked = true;
                // It fails for a path that is closed.
                let _ = connection.ping_path(path.id);
            }
        }
    }

    /// Asks all paths for an answer while none is heard, even if their windows are full.
    pub(super) fn probe(&mut self, connection: &mut Connection, now: Instant) {
        if self.probe_at().is_none_or(|at| at > now) {
            return;
        }
        self.probed_at = now;
        for path in self.paths.iter_mut().filter(|path| path.is_established) {
            // It fails for a path that is closed.
            path.must_probe = connection.ping_path(path.id).is_ok();
        }
    }

    /// When all paths must be asked for an answer; `None` while no answer is expected.
    pub(super) fn probe_at(&self) -> Option<Instant> {
        let established = || self.paths.iter().filter(|path| path.is_established);
        let is_waiting = established().any(|path| path.gate.read().inflight > 0);
        let heard_at = established().map(|path| path.heard_at.unwrap_or(path.opened_at)).max()?;
        // Distant far ends may take longer than a second to answer.
        let at = heard_at.max(self.probed_at) + PROBE.max(self.slowest());
        (is_waiting || self.is_data_waiting).then_some(at)
    }

    /// Records since when the far end is heard without a pause. Both ends may pause for a moment,
    /// and then the paths answer one after the other: silence counts from the first answer.
    pub(super) fn watch_health(&mut self, connection: &mut Connection, now: Instant) {
        if now.saturating_duration_since(self.began_at) > PAUSE {
            self.alive_since = None;
        }
        self.began_at = now;
        let heard_at = self.paths.iter().filter_map(|path| path.heard_at).max();
        if let Some(heard_at) = heard_at.filter(|at| *at > self.heard_at) {
            let pause = heard_at.saturating_duration_since(self.heard_at);
            if self.alive_since.is_none() || pause > PAUSE.max(2 * self.slowest()) {
                self.alive_since = Some(heard_at);
            }
            self.heard_at = heard_at;
        }
        // Answers on other paths show whether a path in doubt or the far end is the cause.
        if self.question_at(now).is_some_and(|at| at <= now) {
            self.questioned_at = now;
            for path in self.paths.iter().filter(|path| path.is_well(now)) {
                let _ = connection.ping_path(path.id);
            }
        }
    }

    /// When the other paths are asked for an answer because one is in doubt.
    pub(super) fn question_at(&self, now: Instant) -> Option<Instant> {
        let mut established = self.paths.iter().filter(|path| path.is_established);
        let in_doubt = established.any(|path| path.is_doubtful(now));
        in_doubt.then(|| self.heard_at.max(self.questioned_at) + QUIET)
    }

    /// The maximum probe timeout.
    fn slowest(&self) -> Duration {
        let established = self.paths.iter().filter(|path| path.is_established);
        established.map(|path| path.gate.read().probe_timeout()).max().unwrap_or_default()
    }

    /// Keeps paths alive, less often if the connection is idle.
    pub(super) fn keep_alive(&mut self, connection: &mut Connection, now: Instant) {
        let stats = connection.stats();
        let frames = |stats: &FrameStats| stats.stream + stats.datagram;
        let data_frames = frames(&stats.frame_tx) + frames(&stats.frame_rx);
        if self.data_frames != data_frames {
            (self.data_frames, self.active_at) = (data_frames, now);
        }
        let is_idle = now.saturating_duration_since(self.active_at) >= IDLE;
        let wanted = if is_idle { self.keep_alive } else { self.keep_alive.min(KEEP_ALIVE) };
        for path in self.paths.iter_mut().filter(|path| path.keep_alive != Some(wanted)) {
            path.keep_alive = Some(wanted);
            // It fails for a path that is closed.
            let _ = connection.set_path_keep_alive_interval(path.id, Some(wanted));
        }
    }

    /// Makes paths in doubt backups while there is another path, and restores them when they
    /// answer.
    pub(super) fn doubt(&mut self, connection: &mut Connection, now: Instant) {
        let any_well = self.paths.iter().any(|path| path.is_established && !path.is_doubtful(now));
        for path in self.paths.iter_mut().filter(|path| path.is_established) {
            let is_backup = any_well && path.is_doubtful(now);
            if is_backup != path.is_backup {
                path.is_backup = is_backup;
                let status = if is_backup { PathStatus::Backup } else { PathStatus::Available };
                // Without multipath there is one path, which is never in doubt alone.
                let _ = connection.set_path_status(path.id, status);
            }
        }
    }

    pub(super) fn close_dead(&mut self, connection: &mut Connection, now: Instant) {
        let Some(alive_since) = self.alive_since else { return };
        if !self.paths.iter().any(|path| path.is_well(now)) {
            return;
        }
        let open_timeout = self.open_timeout();
        // The far end must have been heard on others for all the time that this one was silent.
        let heard_by_others = |path: &Path| {
            let others = self.paths.iter().filter(|other| other.id != path.id);
            others.filter_map(|other| other.heard_at).max()
        };
        let is_silent = |path: &Path| match path.gate.read().waiting_since {
            Some(since) if path.is_established => {
                let dead_at = since.max(alive_since) + path.dead_after();
                path.is_dead(now) && heard_by_others(path).is_some_and(|at| at >= dead_at)
            }
            _ if path.is_established => false,
            _ => now.saturating_duration_since(path.opened_at) > open_timeout,
        };
        for path in self.paths.iter().filter(|path| is_silent(path)) {
            tracing::debug!(path = %path.id, "given up: it does not answer");
            // It fails for a path that is closed already.
            let _ = connection.close_path(now, path.id, VarInt::from_u32(0));
        }
    }

    /// How long a new path may take to answer.
    pub(super) fn open_timeout(&self) -> Duration {
        let slowest = self.paths.iter().filter_map(|path| path.gate.read().srtt).max();
        OPEN_TIMEOUT.max(3 * slowest.unwrap_or_default())
    }
}
