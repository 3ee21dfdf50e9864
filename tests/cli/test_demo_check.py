"""The demo's check: it finds what is missing, doubled or wrong, and forgives what happened to the files."""

from __future__ import annotations

import hashlib
import os
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from echomq.cli.demo_listing import BUILT, Listing, default_folder, list_files, shown
from echomq.cli.demo_records import Kind, Record, RecordReader, RecordWriter, carried, hash_once, path_of
from echomq.cli.demo_run import run_demo
from echomq.cli.demo_tally import TIMED, Lateness, Tally, cast
from echomq.cli.demo_totals import Buried, Ended, Totals, sum_up
from echomq.cli.demo_view import silent
from support.embedded import IDLE, folder


@pytest.fixture
def files(tmp_path: Path) -> Path:
    root = tmp_path / "files"
    root.mkdir()
    for number in range(30):
        (root / f"{number:02}").write_bytes(os.urandom(100))
    return root


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("ECHOMQ_IDLE_SECONDS", IDLE)
    with folder("h") as path:
        yield path


def summed(listing: Listing, records: list[Record], *, done: int | None = None, dead: int = 1, left: int = 0) -> Totals:
    tally = Tally.of(listing.files)
    for record in [*records, Record(Kind.SNOOZED, "x", 1), Record(Kind.TICK, "tick", 1)]:
        tally.add(record)
    finished = sum(record.kind.final for record in records) + 1
    morgue = (Buried("JOB00000000000", 2, "always fails"),)
    return sum_up(listing, tally, Ended("q", 1.0, finished if done is None else done, dead, left, morgue))


def hashed(listing: Listing) -> list[Record]:
    return [hash_once(carried(found.path), 1) for found in listing.files]


def test_a_folder_whose_files_were_all_hashed_once_is_fine(files: Path) -> None:
    listing = list_files(files)
    answer = summed(listing, hashed(listing))
    assert answer.problems == ()
    assert answer.ok
    assert answer.compared == answer.hashed_once == 30


def test_an_occurrence_is_as_late_as_it_began_behind_its_slot_and_moves_nothing() -> None:
    tally = Tally.of([])
    tally.add(Record(Kind.TICK, "tick", 5_200, 4_000))
    assert tally.lateness == Lateness(1, 1_200, 1_200, 1_200)
    assert (tally.moved, tally.ends) == (0, {})


def test_a_file_that_was_never_hashed_is_named(files: Path) -> None:
    listing = list_files(files)
    answer = summed(listing, hashed(listing)[:-1])
    assert not answer.ok
    assert answer.missing == (str(files / "29"),)


def test_a_file_that_was_hashed_twice_is_named(files: Path) -> None:
    listing = list_files(files)
    records = hashed(listing)
    answer = summed(listing, [*records, records[3]])
    assert not answer.ok
    assert answer.repeated == (f"{files / '03'} (2 times)",)
    assert answer.hashed_once == 29


def test_a_wrong_hash_is_named(files: Path) -> None:
    listing = list_files(files)
    records = hashed(listing)
    records[5] = Record(Kind.HASHED, records[5].target, 1, 0, "00" * 32, records[5].size, records[5].mtime_ns)
    answer = summed(listing, records)
    assert not answer.ok
    assert answer.differing == (str(files / "05"),)


@pytest.mark.parametrize(("done", "dead", "left"), [(30, 1, 0), (32, 1, 0), (31, 0, 0), (31, 2, 0), (31, 1, 1)])
def test_counts_that_do_not_add_up_are_a_failure(files: Path, done: int, dead: int, left: int) -> None:
    listing = list_files(files)
    assert summed(listing, hashed(listing), done=31).ok
    assert not summed(listing, hashed(listing), done=done, dead=dead, left=left).ok


@pytest.mark.parametrize("count", [0, 1, 2, 3, 10, TIMED + 2, TIMED + 3, 100])
def test_every_file_has_one_part(count: int, files: Path) -> None:
    found = list_files(files).files[:1] * count
    targets = cast(found).targets
    assert sum(target.startswith("/") for target in targets) == count


def test_what_happens_to_files_between_listing_and_hashing_is_said_and_forgiven(files: Path, home: Path) -> None:
    listing = list_files(files)
    (files / "10").unlink()
    (files / "11").unlink()
    os.mkfifo(files / "11")
    (files / "12").unlink()
    (files / "12").symlink_to(files / "13")
    (files / "14").unlink()
    (files / "14").mkdir()
    (files / "15").write_bytes(b"something else")
    answer = run_demo(listing, home, silent)
    assert answer.ok, answer.problems
    assert [Path(text.partition(":")[0]).name for text in answer.vanished] == ["10", "11", "12", "14"]
    assert [Path(text).name for text in answer.changed] == ["15"]
    assert (answer.hashed, answer.hashed_once) == (26, 26)
    assert any("gone before it was hashed" in line for line in answer.lines())


def test_a_file_that_cannot_be_read_is_said_with_the_reason() -> None:
    record = hash_once("/proc/self/mem", 1)
    assert record.kind is Kind.UNREADABLE
    assert record.error


def test_a_hash_is_the_files_sha256(files: Path) -> None:
    record = hash_once(carried(str(files / "07")), 5, 4)
    assert (record.kind, record.start_ms, record.due_ms) == (Kind.HASHED, 5, 4)
    assert record.sha256 == hashlib.sha256((files / "07").read_bytes()).hexdigest()


@pytest.mark.parametrize(
    "name", [b"/a/plain", b"/two\nlines", b"/\xff\xfe", "/gr\u00fc\u00df".encode(), b"/" + bytes(range(1, 256))]
)
def test_any_name_survives_the_journey(name: bytes, tmp_path: Path) -> None:
    path = os.fsdecode(name)
    writer, reader = RecordWriter(tmp_path / "r"), RecordReader(tmp_path / "r")
    writer.write(Record(Kind.HASHED, carried(path), 1))
    (record,) = reader.new()
    assert path_of(record.target) == path
    assert shown(path).isprintable()
    writer.close()
    reader.close()


def test_a_half_written_record_is_read_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "r"
    path.write_bytes(b'{"kind":"tick","target":"t"')
    reader = RecordReader(path)
    assert list(reader.new()) == []
    with path.open("ab") as file:
        file.write(b',"start_ms":7}\n')
    assert [record.start_ms for record in reader.new()] == [7]
    reader.close()


def test_the_default_folder_is_the_standard_library_without_what_is_built() -> None:
    assert default_folder() == Path(sysconfig.get_path("stdlib"))
    listing = list_files(default_folder(), without=BUILT)
    names = {Path(found.path).relative_to(listing.root).parts for found in listing.files}
    assert ("os.py",) in names
    assert not any({"site-packages", "__pycache__"} & set(parts) for parts in names)


def test_a_named_folder_is_taken_whole(tmp_path: Path) -> None:
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "x.pyc").write_text("")
    assert len(list_files(tmp_path).files) == 1


def test_a_folder_that_cannot_be_read_is_said() -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        closed = folder / "closed"
        closed.mkdir(0)
        root = os.geteuid() == 0
        if root:
            os.seteuid(65534)  # root reads everything; nobody does not
        try:
            unreadable = list_files(folder).unreadable
        finally:
            if root:
                os.seteuid(0)
            closed.chmod(0o700)
        assert [text.partition(":")[0] for text in unreadable] == [str(closed)]
