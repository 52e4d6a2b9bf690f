import errno
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from gpugate.certs import files, store
from gpugate.certs.inspect import CertificateError, parse
from gpugate.certs.renew import Action
from gpugate.certs.store import ensure, load, read
from gpugate.certs.verify import verify
from tests.shared.ordinary_user import as_ordinary_user

_HOSTS = ["gpugate.system.svc", "127.0.0.1"]


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def _snapshot(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_an_empty_place_becomes_a_closed_store(tmp_path: Path, now: datetime) -> None:
    bundle = ensure(tmp_path / "a" / "certs", _HOSTS, now)
    paths = bundle.paths
    assert bundle.plan.action is Action.ROTATE_CA
    assert _mode(paths.directory) == 0o700
    assert _mode(paths.ca_key) == _mode(paths.key) == 0o600
    assert _mode(paths.ca_certificate) == _mode(paths.certificate) == 0o644
    assert set(_snapshot(paths.directory)) == {
        ".lock",
        "ca.crt",
        "ca.key",
        "tls.crt",
        "tls.key",
    }
    assert paths.certificate.read_bytes() == bundle.serving.certificate_pem
    assert paths.key.read_bytes() == bundle.serving.key_pem
    pem, ca_pem, key = bundle.serving.certificate_pem, bundle.ca_pem, paths.key
    assert verify(pem, ca_pem, _HOSTS, now, key_pem=key.read_bytes()) == []


def test_modes_do_not_hang_on_the_umask(tmp_path: Path, now: datetime) -> None:
    before = os.umask(0o277)
    try:
        paths = ensure(tmp_path, _HOSTS, now).paths
    finally:
        os.umask(before)
    assert (_mode(paths.key), _mode(paths.certificate)) == (0o600, 0o644)


def test_a_second_time_nothing_is_touched(tmp_path: Path, now: datetime) -> None:
    first = ensure(tmp_path, _HOSTS, now)
    before = _snapshot(tmp_path)
    second = ensure(tmp_path, _HOSTS, now + timedelta(days=3))
    assert second.plan.action is Action.KEEP
    assert second.serving == first.serving
    assert _snapshot(tmp_path) == before


def test_a_due_serving_certificate_is_renewed_under_the_same_ca(tmp_path: Path, now: datetime) -> None:
    first = ensure(tmp_path, _HOSTS, now)
    second = ensure(tmp_path, _HOSTS, now + timedelta(days=61))
    assert second.plan.action is Action.ISSUE_SERVING
    assert second.ca_pem == first.ca_pem
    assert second.serving != first.serving


def test_a_rotation_keeps_the_old_ca_in_the_bundle(tmp_path: Path, now: datetime) -> None:
    first = ensure(tmp_path, _HOSTS, now)
    second = ensure(tmp_path, _HOSTS, now + timedelta(days=2440))
    assert second.plan.action is Action.ROTATE_CA
    assert second.ca_pem.endswith(first.ca_pem)
    assert second.paths.ca_certificate.read_bytes() == second.ca_pem
    held = load(tmp_path)
    assert held.serving == second.serving


def test_the_mode_of_a_directory_that_was_there_is_its_owners_matter(tmp_path: Path, now: datetime) -> None:
    tmp_path.chmod(0o755)
    ensure(tmp_path, _HOSTS, now)
    assert _mode(tmp_path) == 0o755


def test_a_key_left_open_is_closed(tmp_path: Path, now: datetime) -> None:
    key = ensure(tmp_path, _HOSTS, now).paths.key
    key.chmod(0o644)
    ensure(tmp_path, _HOSTS, now)
    assert _mode(key) == 0o600


def test_half_a_pair_counts_as_none(tmp_path: Path, now: datetime) -> None:
    paths = ensure(tmp_path, _HOSTS, now).paths
    paths.key.unlink()
    assert load(tmp_path).serving is None
    assert ensure(tmp_path, _HOSTS, now).plan.action is Action.ISSUE_SERVING
    paths.ca_certificate.unlink()
    assert ensure(tmp_path, _HOSTS, now).plan.action is Action.ROTATE_CA


@pytest.mark.parametrize("survivor", [1, 2, 3])
def test_a_writer_that_dies_between_two_files_is_mended(
    tmp_path: Path, now: datetime, monkeypatch: pytest.MonkeyPatch, survivor: int
) -> None:
    ensure(tmp_path, _HOSTS, now)
    later = now + timedelta(days=2440)
    real = files.replace
    written: list[Path] = []

    def dying(path: Path, data: bytes, mode: int) -> None:
        if len(written) == survivor:
            raise KeyboardInterrupt
        written.append(path)
        real(path, data, mode)

    with monkeypatch.context() as patch:
        patch.setattr(files, "replace", dying)
        with pytest.raises(KeyboardInterrupt):
            ensure(tmp_path, _HOSTS, later)
    bundle = ensure(tmp_path, _HOSTS, later)
    key, pem = bundle.serving.key_pem, bundle.serving.certificate_pem
    assert bundle.plan.action is not Action.KEEP
    assert verify(pem, bundle.ca_pem, _HOSTS, later, key_pem=key) == []
    assert ensure(tmp_path, _HOSTS, later).plan.action is Action.KEEP


def test_a_temporary_file_left_behind_is_no_hindrance(tmp_path: Path, now: datetime) -> None:
    target = tmp_path / "elsewhere"
    (tmp_path / ".tls.key.tmp").symlink_to(target)
    ensure(tmp_path, _HOSTS, now)
    assert not target.exists()
    assert not (tmp_path / ".tls.key.tmp").is_symlink()


def test_many_processes_starting_at_once_agree(tmp_path: Path, now: datetime) -> None:
    code = (
        "import sys; from datetime import datetime; from pathlib import Path;"
        "from gpugate.certs.store import ensure;"
        "sys.stdin.read();"
        "bundle = ensure(Path(sys.argv[1]), ['a.svc'],"
        " datetime.fromisoformat(sys.argv[2]));"
        "print(bundle.plan.action, bundle.serving.certificate_pem)"
    )
    arguments = [sys.executable, "-c", code, str(tmp_path / "new"), now.isoformat()]
    started = [subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(6)]
    for process in started:
        assert process.stdin is not None
        process.stdin.close()
        process.stdin = None
    told = [process.communicate()[0].split(maxsplit=1) for process in started]
    assert sorted(action for action, _ in told) == ["keep"] * 5 + ["rotate-ca"]
    assert len({pem for _, pem in told}) == 1


def test_a_reader_never_sees_a_pair_that_does_not_match(tmp_path: Path, now: datetime) -> None:
    ensure(tmp_path, _HOSTS, now)
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            ensure(tmp_path, _HOSTS, now, force=True)
            # A lock of the kernel is not fair: a writer that never pauses could keep the reader out for ever.
            stop.wait(0.005)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(40):
            held = load(tmp_path)
            assert held.ca is not None
            assert held.serving is not None
            pem, key = held.serving.certificate_pem, held.serving.key_pem
            assert verify(pem, held.ca.certificate_pem, [], now, key_pem=key) == []
    finally:
        stop.set()
        writer.join()


def test_a_lock_that_is_never_let_go_ends_in_an_error(tmp_path: Path, now: datetime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "LOCK_TIMEOUT", 0.05)
    with files.exclusive(tmp_path / ".lock", 1):
        with pytest.raises(CertificateError, match="held by another process"):
            ensure(tmp_path, _HOSTS, now)
        with pytest.raises(CertificateError, match="held by another process"):
            load(tmp_path)


def test_a_mounted_secret_without_lock_and_ca_key_is_read(tmp_path: Path, now: datetime) -> None:
    ensure(tmp_path / "..data", _HOSTS, now)
    mount = tmp_path / "mount"
    mount.mkdir()
    for name in ("ca.crt", "tls.crt", "tls.key"):
        (mount / name).symlink_to(tmp_path / "..data" / name)
    contents = read(mount)
    assert contents.ca_key is None
    assert parse(contents.certificate or b"")
    with pytest.raises(CertificateError, match=r"ca\.crt: has no ca\.key beside it"):
        load(mount)
    assert not (mount / ".lock").exists()


@pytest.mark.parametrize("name", ["ca.crt", "ca.key", "tls.crt", "tls.key"])
@pytest.mark.parametrize("spoil", ["garbage", "huge", "directory"])
def test_a_spoilt_file_is_named_and_left_alone(tmp_path: Path, now: datetime, name: str, spoil: str) -> None:
    ensure(tmp_path, _HOSTS, now)
    path = tmp_path / name
    path.unlink()
    if spoil == "directory":
        path.mkdir()
    else:
        path.write_bytes(b"Cg==" if spoil == "garbage" else b"#" * (1 << 21))
    before = None if spoil == "directory" else path.read_bytes()
    with pytest.raises(CertificateError) as error:
        ensure(tmp_path, _HOSTS, now)
    assert str(error.value).startswith(f"{path}: ")
    assert "\n" not in str(error.value)
    assert error.value.remedy
    assert before is None or path.read_bytes() == before


def test_a_file_in_place_of_the_directory_is_refused(tmp_path: Path, now: datetime) -> None:
    path = tmp_path / "file"
    path.touch()
    with pytest.raises(CertificateError, match="file: is not a directory"):
        ensure(path, _HOSTS, now)
    with pytest.raises(CertificateError, match="file: is not a directory"):
        load(path)
    with pytest.raises(CertificateError, match="not a directory"):
        ensure(path / "below", _HOSTS, now)


def test_a_directory_that_is_not_there_cannot_be_loaded(tmp_path: Path) -> None:
    with pytest.raises(CertificateError, match="no such file or directory; check"):
        load(tmp_path / "none")


def test_a_directory_closed_to_this_user_is_one_clear_error(now: datetime) -> None:
    with as_ordinary_user() as home:
        home.chmod(0o500)
        with pytest.raises(CertificateError, match="permission denied; run as"):
            ensure(home, _HOSTS, now)
        with pytest.raises(CertificateError, match="permission denied; run as"):
            ensure(home / "below", _HOSTS, now)
        assert not list(home.iterdir())


def test_a_key_closed_to_this_user_is_named(now: datetime) -> None:
    with as_ordinary_user() as home:
        path = ensure(home, _HOSTS, now).paths.key
        path.chmod(0)
        with pytest.raises(CertificateError, match=r"tls\.key: permission denied"):
            load(home)


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.EROFS, "mount a writable volume"),
        (errno.ENOSPC, "make room"),
        (errno.EIO, "check the path and its file system"),
    ],
)
def test_a_volume_that_refuses_the_write_leaves_the_old_files(
    tmp_path: Path,
    now: datetime,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    remedy: str,
) -> None:
    ensure(tmp_path, _HOSTS, now)
    before = _snapshot(tmp_path)
    monkeypatch.setattr(os, "fsync", _failing(number))
    with pytest.raises(CertificateError, match=remedy):
        ensure(tmp_path, _HOSTS, now, force=True)
    monkeypatch.undo()
    names = ("ca.crt", "ca.key", "tls.crt", "tls.key")
    after = _snapshot(tmp_path)
    assert {name: after[name] for name in names} == {name: before[name] for name in names}


def _failing(number: int) -> Callable[[int], None]:
    def fsync(_: int) -> None:
        raise OSError(number, os.strerror(number))

    return fsync
