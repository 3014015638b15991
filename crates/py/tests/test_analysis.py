"""Age processes, closed forms, statistics and captures, against independent calculations."""

from __future__ import annotations

import array
import bisect
import json
import math
import os
import random
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest
from support import command, python

import freshline
from freshline import AgeProcess, CaptureError, Queues, confidence, jain_index, path_lower_bound

MICRO = 1e-6

# Age processes


def test_a_saw_tooth_by_hand() -> None:
    # Ages: 1 at 1 s, up to 3 at 3 s; 0.5 from there, up to 1.5 at 4 s.
    ages = AgeProcess([1, 3, 4], [0, 2.5, 3])
    assert ages.duration == pytest.approx(3)
    assert ages.mean == pytest.approx(((1 + 3) / 2 * 2 + (0.5 + 1.5) / 2) / 3)
    assert ages.max == pytest.approx(3)
    assert ages.peak_mean == pytest.approx((3 + 1.5) / 2)
    saw = ages.sawtooth().to_dict()
    assert saw["time_s"] == pytest.approx([1, 3, 3, 4, 4, 4])
    assert saw["age_s"] == pytest.approx([1, 3, 0.5, 1.5, 1, 1])
    assert "3.000 s" in repr(ages)


def test_start_and_end_bound_the_measured_time() -> None:
    # 0 at 0 s, up to 2; 1 from 2 s to 5 s, up to 4.
    ages = AgeProcess([2], [1], start=0, end=5)
    assert ages.duration == pytest.approx(5)
    assert ages.mean == pytest.approx((2 * 2 / 2 + (1 + 4) / 2 * 3) / 5)
    assert ages.max == pytest.approx(4)
    assert ages.peak_mean == pytest.approx(2)
    assert AgeProcess([2, 9], [1, 8], start=0, end=5).mean == ages.mean, "later deliveries do not count"
    assert AgeProcess([-1, 2], [-1, 1], start=0, end=5).mean == ages.mean, "nor do earlier ones"


def test_stale_deliveries_change_nothing() -> None:
    assert AgeProcess([1, 2, 3], [0.9, 0.2, 2.8]).mean == AgeProcess([1, 3], [0.9, 2.8]).mean
    assert AgeProcess([1, 2, 3], [0.9, 0.9, 2.8]).mean == AgeProcess([1, 3], [0.9, 2.8]).mean


def test_deliveries_may_come_in_any_order() -> None:
    dice = random.Random(4)
    deliveries = [(dice.uniform(0, 100), dice.uniform(0, 3)) for _ in range(500)]
    in_order = sorted(deliveries)
    one, other = (
        AgeProcess([at for at, _ in those], [at - delay for at, delay in those]) for those in (deliveries, in_order)
    )
    assert (one.mean, one.max, one.peak_mean) == (other.mean, other.max, other.peak_mean)


def age_at(time: float, received: Sequence[float], freshest: Sequence[float]) -> float:
    return time - freshest[bisect.bisect_right(received, time) - 1]


@pytest.mark.parametrize("seed", range(5))
def test_random_deliveries_agree_with_an_integration_of_the_age(seed: int) -> None:
    dice = random.Random(seed)
    received, generated = [], []
    now = 0.0
    for _ in range(400):
        now += dice.expovariate(10)
        received.append(now)
        generated.append(now - dice.expovariate(2))
    freshest, newest = [], -math.inf
    for time in generated:
        newest = max(newest, time)
        freshest.append(newest)
    end = now + 1
    ages = AgeProcess(received, generated, end=end)
    steps = 200_000
    width = (end - received[0]) / steps
    samples = [age_at(received[0] + (step + 0.5) * width, received, freshest) for step in range(steps)]
    assert ages.mean == pytest.approx(sum(samples) / steps, rel=1e-4)
    assert ages.max == pytest.approx(max(samples), abs=2 * width)
    samples.sort()
    for q in (0.01, 0.25, 0.5, 0.9, 0.99):
        assert ages.quantile(q) == pytest.approx(samples[int(q * steps)], abs=1e-3)
    cdf = ages.cdf(10**6).to_dict()
    for age, probability in list(zip(cdf["age_s"], cdf["probability"], strict=True))[:: len(cdf["age_s"]) // 20]:
        assert probability == pytest.approx(bisect.bisect_right(samples, age) / steps, abs=2e-3)


def test_quantiles_and_distribution_by_hand() -> None:
    # One second at each age from 1 to 2, and half a second at each from 0 to 1 and from 3 to 4.
    ages = AgeProcess([0, 1.5, 2], [-1, 1.5, -1 + 3], start=None, end=2)
    saw = ages.sawtooth().to_dict()
    assert saw["age_s"] == pytest.approx([1, 2.5, 0, 0.5, 0, 0])
    # 1.5 s of the ages 1 to 2.5, and 0.5 s of those from 0 to 0.5.
    for q, age in [(0, 0), (0.125, 0.25), (0.25, 0.5), (0.5, 1.5), (0.625, 1.75), (1, 2.5)]:
        assert ages.quantile(q) == pytest.approx(age, abs=1e-8)
    cdf = ages.cdf().to_dict()
    assert cdf["age_s"] == pytest.approx([0, 0.5, 1, 2.5])
    assert cdf["probability"] == pytest.approx([0, 0.25, 0.25, 1])


def test_a_distribution_has_at_most_as_many_lines_as_asked_for() -> None:
    ages = AgeProcess([float(at) for at in range(5000)], [at - 0.1 - at / 10000 for at in range(5000)])
    assert len(ages.cdf(10)) == 10 and len(ages.cdf()) == 1000
    cdf = ages.cdf(7).to_dict()
    assert cdf["probability"][0] == 0 and cdf["probability"][-1] == pytest.approx(1)
    assert cdf["age_s"] == sorted(cdf["age_s"])
    assert len(ages.cdf(0)) >= 1


def test_unix_times_lose_no_more_than_a_microsecond() -> None:
    dice = random.Random(7)
    received = sorted(dice.uniform(0, 100) for _ in range(1000))
    generated = [at - dice.uniform(0.01, 0.5) for at in received]
    small = AgeProcess(received, generated)
    epoch = 1_764_000_000.0
    large = AgeProcess([epoch + at for at in received], [epoch + at for at in generated])
    assert large.mean == pytest.approx(small.mean, abs=MICRO)
    assert large.max == pytest.approx(small.max, abs=MICRO)
    assert large.quantile(0.9) == pytest.approx(small.quantile(0.9), abs=MICRO)
    times = large.sawtooth()["time_s"]
    assert times[0] == pytest.approx(epoch + received[0], abs=MICRO)
    assert times[-1] == pytest.approx(epoch + received[-1], abs=MICRO)


def test_times_come_from_any_sequence_or_buffer() -> None:
    received, generated = [1, 2, 4], [0, 1.5, 3]
    expected = AgeProcess(received, generated).mean
    assert AgeProcess(tuple(received), array.array("d", generated)).mean == expected
    assert AgeProcess(array.array("i", received), generated).mean == expected
    table = AgeProcess(received, generated).sawtooth()
    assert AgeProcess(table["time_s"], [at - age for at, age in zip(table["time_s"], table["age_s"])]).duration == 3
    numpy = pytest.importorskip("numpy")
    for kind in ("f8", "f4", "i8", "u4", ">f8"):
        assert AgeProcess(numpy.array(received, kind), numpy.array(generated)).mean == expected
    strided = numpy.array([received, generated], float).T
    assert AgeProcess(strided[:, 0], strided[:, 1]).mean == expected
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"received": received, "generated": generated})
    assert AgeProcess(frame["received"], frame["generated"]).mean == expected


@pytest.mark.parametrize(
    ("received", "generated", "bounds", "why"),
    [
        ([1, 2], [0], {}, "2 times of receipt and 1"),
        ([], [], {}, "no delivery"),
        ([1, math.nan], [0, 1], {}, "delivery 1"),
        ([1, 2], [0, -math.inf], {}, "delivery 1"),
        ([1, 2], [0, 2.5], {}, "delivery 1 was received 0.5 s before"),
        ([1], [0], {"start": 2, "end": 1}, "`end`"),
        ([1], [0], {"end": 0.5}, "`end`"),
        ([1], [0], {"end": math.nan}, "`end`"),
        ([1], [0], {"start": math.nan}, "`start`"),
        ([1], [0], {"start": math.inf}, "`start`"),
        ([1], [0], {"start": -math.inf}, "`start`"),
    ],
)
def test_invalid_times_are_refused(
    received: list[float], generated: list[float], bounds: dict[str, float], why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        AgeProcess(received, generated, **bounds)


def test_inputs_without_numbers_are_refused() -> None:
    for wrong in ["12", ["a"], None, 3, [None], [1 + 2j]]:
        with pytest.raises((TypeError, ValueError)):
            AgeProcess(wrong, wrong)  # type: ignore[arg-type]


def test_a_quantile_outside_0_to_1_is_refused() -> None:
    ages = AgeProcess([1, 2], [0, 1])
    for q in (-0.1, 1.1, math.nan):
        with pytest.raises(ValueError, match="q is"):
            ages.quantile(q)


def test_no_time_has_no_age() -> None:
    ages = AgeProcess([1], [0.5])
    assert (ages.mean, ages.peak_mean, ages.duration, ages.quantile(0.5)) == (None, None, 0, None)
    assert len(ages.cdf()) == 0
    none = AgeProcess([], [], start=0, end=2)
    assert none.mean == pytest.approx(1) and none.max == pytest.approx(2) and none.peak_mean is None


# Closed forms

SERVICE = 10.0


@pytest.mark.parametrize("load", [0.05, 0.3, 0.53, 0.9])
def test_mean_ages_are_those_of_kaul_yates_and_gruteser(load: float) -> None:
    rate = load * SERVICE
    assert Queues.mm1(SERVICE).mean_age(rate) == pytest.approx(
        (1 + 1 / load + load**2 / (1 - load)) / SERVICE, abs=1e-8
    )
    assert Queues.mm1(SERVICE).mean_queued(rate) == pytest.approx(load**2 / (1 - load))
    assert Queues.md1(SERVICE).mean_age(rate) == pytest.approx(
        (0.5 + 1 / (2 * (1 - load)) + (1 - load) * math.exp(load) / load) / SERVICE, abs=1e-8
    )
    assert Queues.md1(SERVICE).mean_queued(rate) == pytest.approx(load**2 / (1 - load) / 2)
    beta = 0.5
    for _ in range(10_000):
        beta = math.exp(-(1 - beta) / load)
    assert Queues.dm1(SERVICE).mean_age(rate) == pytest.approx((1 / (2 * load) + 1 / (1 - beta)) / SERVICE, abs=1e-8)
    assert Queues.dm1(SERVICE).mean_queued(rate) == pytest.approx(load * beta / (1 - beta), rel=1e-6)


def test_a_second_queue_that_is_fast_adds_nothing() -> None:
    tandem, single = Queues.tandem_mm1(SERVICE, 1e6), Queues.mm1(SERVICE)
    assert tandem.mean_age(5) == pytest.approx(single.mean_age(5), abs=2e-6)
    assert tandem.capacity == single.capacity == SERVICE
    assert Queues.tandem_mm1(3, 7).mean_age(2) == Queues.tandem_mm1(7, 3).mean_age(2)


def test_the_optimal_rate_has_the_smallest_age() -> None:
    for queues in (Queues.mm1(SERVICE), Queues.md1("10/s"), Queues.dm1(10), Queues.tandem_mm1(8, SERVICE)):
        best = queues.mean_age(queues.optimal_rate)
        assert best is not None
        for factor in (0.9, 0.99, 1.01, 1.1):
            near = queues.mean_age(queues.optimal_rate * factor)
            assert near is not None and near >= best
    assert Queues.mm1(SERVICE).optimal_rate == pytest.approx(5.31, abs=0.01)


def test_a_queue_at_its_capacity_has_no_mean_age() -> None:
    queues = Queues.mm1(SERVICE)
    for rate in (SERVICE, SERVICE + 1, 1e12):
        assert queues.mean_age(rate) is None and queues.mean_queued(rate) is None
    for rate in (0, -1, math.nan):
        assert queues.mean_age(rate) is None
    with pytest.raises(ValueError):
        Queues.mm1(0)


def test_the_lower_bound_of_a_path() -> None:
    assert path_lower_bound([(0.002, 0.005), (0.010, 0.007), (0.004, 0.003)]) == pytest.approx(0.031 + 0.005)
    assert path_lower_bound([("2ms", "5ms")]) == pytest.approx(0.008)
    assert path_lower_bound([]) == 0
    with pytest.raises(ValueError):
        path_lower_bound([(-1, 0)])


def test_jains_index() -> None:
    assert jain_index([5, 5, 5]) == pytest.approx(1)
    assert jain_index([1, 0, 0, 0]) == pytest.approx(0.25)
    assert jain_index([1, 2, 3]) == pytest.approx(36 / (3 * 14))
    assert jain_index([0, 0]) == 1
    assert jain_index([]) is None and jain_index([1, -1]) is None and jain_index([1, math.nan]) is None


@pytest.mark.parametrize(("count", "student"), [(2, 12.706), (3, 4.303), (5, 2.776), (10, 2.262), (30, 2.045), (121, 1.980)])
def test_confidence_is_that_of_students_t(count: int, student: float) -> None:
    values = [float(number) for number in range(count)]
    mean = sum(values) / count
    deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / (count - 1))
    assert confidence(values) == pytest.approx(student * deviation / math.sqrt(count), rel=1e-3)


def test_one_value_has_no_confidence() -> None:
    assert confidence([]) is None and confidence([1.0]) is None
    assert confidence([2.0, 2.0, 2.0]) == 0


# Captures


def packet(at: float, is_forward: bool, seq: int, ack: int, payload: bytes = b"") -> bytes:
    """A TCP segment in an Ethernet frame, as a pcap file has it."""
    hosts, ports = (b"\n\0\0\1", b"\n\0\0\2"), (1000, 2000)
    if not is_forward:
        hosts, ports = hosts[::-1], ports[::-1]
    tcp = struct.pack(">HHIIBBHHH", *ports, seq, ack, 5 << 4, 0x10, 65535, 0, 0) + payload
    ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(tcp), 0, 0, 64, 6, 0, *hosts)
    frame = bytes(12) + b"\x08\0" + ip + tcp
    micros = round(at * 1e6)
    return struct.pack("<IIII", *divmod(micros, 10**6), len(frame), len(frame)) + frame


def capture() -> bytes:
    """Ten segments 100 ms apart, each acknowledged after 20 ms."""
    parts = [struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)]
    for number in range(10):
        at, seq = 1000 + number / 10, 1 + number * 100
        parts += [packet(at, True, seq, 1, bytes(100)), packet(at + 0.02, False, 1, seq + 100)]
    return b"".join(parts)


@pytest.mark.parametrize("kind", ["bytes", "bytearray", "memoryview", "str", "path"])
def test_the_age_of_a_tcp_flow_in_a_capture(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "flow.pcap"
    file.write_bytes(capture())
    given = {
        "bytes": capture(),
        "bytearray": bytearray(capture()),
        "memoryview": memoryview(capture()),
        "str": str(file),
        "path": file,
    }[kind]
    measured = freshline.age(given)  # type: ignore[arg-type]
    assert measured.error is None and measured.packets["tcp"] == 20 and measured.sessions == []
    assert measured.duration_s == pytest.approx(0.92)
    (flow,) = measured.flows
    assert (flow["from"], flow["to"], flow["bytes"]) == ("10.0.0.1:1000", "10.0.0.2:2000", 1000)
    # From 20 ms to 120 ms in each tooth.
    assert flow["age"]["mean_ms"] == pytest.approx(70) and flow["age"]["max_ms"] == pytest.approx(120)
    assert flow["rtt"]["mean_ms"] == pytest.approx(20)


def test_a_capture_that_is_cut_short_is_measured_up_to_there() -> None:
    measured = freshline.age(capture()[:-7])
    assert measured.error is not None and "packet 20" in measured.error
    assert measured.packets["read"] == 19 and measured.flows[0]["acked_bytes"] == 900


def test_every_prefix_of_a_capture_is_measured_or_refused() -> None:
    whole = capture()
    for length in range(0, len(whole), 11):
        try:
            freshline.age(whole[:length])
        except CaptureError:
            assert length < 24, "the file header is complete"


def test_random_bytes_are_not_a_capture() -> None:
    dice = random.Random(3)
    for given in [b"", b"rubbish" * 100, dice.randbytes(1000)]:
        with pytest.raises(CaptureError, match="pcap"):
            freshline.age(given)


def test_random_damage_of_a_capture_does_no_harm() -> None:
    dice = random.Random(5)
    for _ in range(300):
        damaged = bytearray(capture())
        for _ in range(dice.randrange(1, 20)):
            damaged[dice.randrange(len(damaged))] = dice.randrange(256)
        try:
            freshline.age(bytes(damaged))
        except CaptureError:
            pass


def test_a_missing_file_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nowhere\.pcap"):
        freshline.age(tmp_path / "nowhere.pcap")
    error = freshline.age(tmp_path).error
    assert error is not None and "directory" in error
    if os.geteuid() != 0:
        closed = tmp_path / "closed.pcap"
        closed.write_bytes(capture())
        closed.chmod(0)
        with pytest.raises(PermissionError):
            freshline.age(closed)


def test_flows_beyond_the_limit_are_counted() -> None:
    measured = freshline.age(capture(), max_flows=1)
    assert len(measured.flows) == 1
    with pytest.raises((ValueError, OverflowError)):
        freshline.age(capture(), max_flows=-1)


def test_the_command_reports_the_same_of_a_capture(tmp_path: Path) -> None:
    file = tmp_path / "flow.pcap"
    file.write_bytes(capture())
    reported = json.loads(command("age", str(file), "--json"))
    measured = freshline.age(file)
    assert reported["flows"] == measured.flows and reported["packets"] == measured.packets


def test_a_capture_can_be_read_from_a_pipe() -> None:
    done = python(
        """
        import os, signal, threading, freshline, tempfile, pathlib
        with tempfile.TemporaryDirectory() as folder:
            pipe = pathlib.Path(folder, "pipe")
            os.mkfifo(pipe)
            writer = threading.Thread(target=lambda: open(pipe, "wb").write(b""), daemon=True)
            writer.start()
            try:
                freshline.age(pipe)
            except freshline.CaptureError:
                print("empty")
        """
    )
    assert (done.returncode, done.stdout) == (0, "empty\n"), done.stderr


def test_of_deliveries_at_one_moment_the_freshest_counts_in_whichever_order() -> None:
    one = AgeProcess([1.0, 1.0, 2.0], [0.5, 0.8, 1.5])
    other = AgeProcess([1.0, 1.0, 2.0], [0.8, 0.5, 1.5])
    assert one.peak_mean == other.peak_mean == pytest.approx(1.2)
    assert len(one.sawtooth()) == len(other.sawtooth())


def test_the_fraction_of_time_within_a_limit() -> None:
    # From 0 to 2 s in a tooth from 0 to 2, then from 1 to 3.
    process = AgeProcess([2.0], [1.0], start=0.0, end=4.0)
    assert process.fraction_within(1.0) == pytest.approx(0.25)
    assert process.fraction_within(2.0) == pytest.approx((2.0 + 1.0) / 4)
    assert (process.fraction_within(-1.0), process.fraction_within(9.0)) == (0.0, 1.0)
    assert AgeProcess([1.0], [0.5]).fraction_within(1.0) is None


def test_times_in_another_unit_than_seconds_are_refused() -> None:
    with pytest.raises(ValueError, match="give them in s"):
        AgeProcess([1.0, 1e12], [0.0, 1e12 - 1])
