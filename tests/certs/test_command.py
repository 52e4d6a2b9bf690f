import base64
import json
import os
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from gpugate.certs.issue import Lifetimes, issue_ca, issue_serving
from gpugate.certs.store import Bundle, ensure
from gpugate.webhook.cli.certs import app
from tests.certs.client_certificates import issue_client

_HOSTS = ["a.svc", "127.0.0.1"]


@pytest.fixture
def stored(tmp_path: Path) -> Bundle:
    return _stored(tmp_path / "certs")


def _stored(path: Path, days_ago: int = 0) -> Bundle:
    return ensure(path, _HOSTS, datetime.now(UTC) - timedelta(days=days_ago))


def _run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def _fields(output: str) -> dict[str, str]:
    return {line[:11].rstrip(): line[11:] for line in output.splitlines()}


def _refused(result: Result) -> str:
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("gpugate: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


def test_issue_makes_a_store_and_says_what_it_did(tmp_path: Path) -> None:
    path = tmp_path / "certs"
    names = ["--hostname", "A.svc", "--hostname", "127.0.0.1"]
    result = _run("issue", path, *names, "--days", 10)
    told = _fields(result.stdout)
    assert (result.exit_code, result.stderr) == (0, "")
    assert told["action"] == "rotate-ca"
    assert told["reason"] == "there is no CA"
    assert told["directory"] == str(path)
    assert told["names"] == "a.svc, 127.0.0.1"
    assert stat.S_IMODE((path / "tls.key").stat().st_mode) == 0o600


def test_issue_keeps_what_is_good_until_it_is_forced(stored: Bundle) -> None:
    path = stored.paths.directory
    kept = _run("issue", path, "--hostname", "a.svc")
    assert _fields(kept.stdout)["action"] == "keep"
    forced = _run("issue", path, "--hostname", "a.svc", "--force")
    assert _fields(forced.stdout)["action"] == "issue-serving"
    assert stored.paths.ca_certificate.read_bytes() == stored.ca_pem


@pytest.mark.parametrize(
    "options",
    [
        ["--hostname", "no host"],
        ["--hostname", "a", "--days", "0"],
        ["--hostname", "a", "--days", "9999999999999"],
        ["--hostname", "a", "--days", "30", "--ca-days", "20"],
    ],
)
def test_issue_refuses_what_it_cannot_do_and_makes_nothing(tmp_path: Path, options: list[str]) -> None:
    path = tmp_path / "certs"
    _refused(_run("issue", path, *options))
    assert not path.exists()


def test_issue_needs_a_host_name(tmp_path: Path) -> None:
    assert _run("issue", tmp_path).exit_code == 2


def test_inspect_finds_a_fresh_store_all_good(stored: Bundle) -> None:
    result = _run("inspect", stored.paths.directory, "--hostname", "a.svc")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == f"file       {stored.paths.ca_certificate}"
    assert "names      a.svc, 127.0.0.1" in lines
    assert any(line.endswith("(89 days left)") for line in lines)
    assert lines[-1] == "result     all good"


def test_inspect_does_not_break_long_lines(stored: Bundle) -> None:
    hosts = [f"a-rather-long-name-{count}.svc" for count in range(20)]
    ensure(stored.paths.directory, hosts, datetime.now(UTC))
    result = _run("inspect", stored.paths.certificate)
    assert f"names      {', '.join(hosts)}" in result.stdout.splitlines()


def test_inspect_writes_json_for_machines(stored: Bundle) -> None:
    result = _run("inspect", stored.paths.directory, "-o", "json")
    document = json.loads(result.stdout)
    assert result.exit_code == 0
    assert list(document) == ["healthy", "checkedAt", "certificates", "problems"]
    ca, leaf = document["certificates"]
    assert (ca["role"], leaf["role"]) == ("ca", "leaf")
    assert leaf["sans"] == _HOSTS
    assert (leaf["state"], leaf["daysLeft"], leaf["isCA"]) == ("valid", 89, False)
    assert len(leaf["fingerprintSHA256"]) == 64
    assert document["problems"] == []


@pytest.mark.parametrize(
    ("days_ago", "state", "words"),
    [(61, "renew", "28 days left"), (100, "expired", "ended 10 days ago")],
)
def test_inspect_fails_when_something_is_due_or_over(tmp_path: Path, days_ago: int, state: str, words: str) -> None:
    paths = _stored(tmp_path / "certs", days_ago).paths
    for path in (paths.directory, paths.certificate):
        result = _run("inspect", path)
        assert result.exit_code == 1
        assert f"state      {state}" in result.stdout
        assert words in result.stdout
        assert result.stdout.endswith("result     needs attention\n")
    assert _run("inspect", paths.ca_certificate).exit_code == 0


@pytest.mark.parametrize(("within", "code"), [(88, 0), (90, 1), (3650, 1), (0, 0)])
def test_inspect_fails_for_what_ends_within_the_days_given(stored: Bundle, within: int, code: int) -> None:
    for path in (stored.paths.directory, stored.paths.certificate):
        result = _run("inspect", path, "--within", within)
        assert result.exit_code == code
        assert ("state      renew" in result.stdout) is bool(code)
    ca = _run("inspect", stored.paths.ca_certificate, "--within", within)
    assert ca.exit_code == (within >= 3650)


def test_inspect_refuses_days_that_are_none(stored: Bundle) -> None:
    assert _run("inspect", stored.paths.directory, "--within", "-1").exit_code == 2
    assert "--within" in _refused(_run("inspect", stored.paths.directory, "--within", "9999999999999"))


def test_inspect_fails_when_the_ca_of_the_serving_certificate_is_due_whatever_its_place_in_the_bundle(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    short = issue_ca(now - timedelta(days=80), Lifetimes(ca=timedelta(days=100), serving=timedelta(days=10)), name="short")
    pair = issue_serving(short, _HOSTS, now, Lifetimes(ca=timedelta(days=100), serving=timedelta(days=10)))
    (tmp_path / "tls.crt").write_bytes(pair.certificate_pem)
    (tmp_path / "tls.key").write_bytes(pair.key_pem)
    for bundle in ((short, issue_ca(now)), (issue_ca(now), short)):
        (tmp_path / "ca.crt").write_bytes(b"".join(ca.certificate_pem for ca in bundle))
        result = _run("inspect", tmp_path, "-o", "json")
        states = {entry["subject"]: (entry["role"], entry["state"]) for entry in json.loads(result.stdout)["certificates"]}
        assert states["CN=short"] == ("ca", "renew")
        assert result.exit_code == 1


def test_inspect_reads_a_file_from_a_pipe_and_waits_for_no_pipe_in_a_directory(stored: Bundle) -> None:
    reading, writing = os.pipe()
    os.write(writing, stored.paths.certificate.read_bytes())
    os.close(writing)
    assert _run("inspect", f"/dev/fd/{reading}").exit_code == 0
    os.close(reading)
    stored.paths.certificate.unlink()
    os.mkfifo(stored.paths.certificate)
    assert "tls.crt: is not a regular file" in _refused(_run("inspect", stored.paths.directory))


def test_inspect_tells_a_mismatch_from_an_expiry(stored: Bundle) -> None:
    foreign = issue_ca(datetime.now(UTC))
    stored.paths.ca_certificate.write_bytes(foreign.certificate_pem)
    result = _run("inspect", stored.paths.directory, "-o", "json")
    assert result.exit_code == 1
    problems = json.loads(result.stdout)["problems"]
    assert [it["kind"] for it in problems] == ["key-mismatch", "foreign-ca"]
    states = {it["state"] for it in json.loads(result.stdout)["certificates"]}
    assert states == {"valid"}


def test_inspect_checks_the_names_asked_for(stored: Bundle) -> None:
    result = _run("inspect", stored.paths.directory, "--hostname", "b.svc")
    assert result.exit_code == 1
    assert "problem    wrong-names: " in result.stdout
    _refused(_run("inspect", stored.paths.certificate, "--hostname", "b.svc"))


def test_inspect_misses_a_key_that_is_not_there(stored: Bundle) -> None:
    stored.paths.key.unlink()
    result = _run("inspect", stored.paths.directory)
    assert result.exit_code == 1
    assert "problem    key-missing: " in result.stdout


def test_inspect_judges_a_mounted_secret_by_what_it_has(stored: Bundle) -> None:
    stored.paths.ca_key.unlink()
    assert _run("inspect", stored.paths.directory).exit_code == 0
    stored.paths.ca_certificate.unlink()
    assert _run("inspect", stored.paths.directory).exit_code == 0


def test_a_retired_ca_does_not_raise_an_alarm(tmp_path: Path) -> None:
    path = tmp_path / "certs"
    _stored(path, 2440)
    paths = _stored(path).paths
    for target in (path, paths.ca_certificate):
        result = _run("inspect", target)
        assert result.exit_code == 0
        assert "role       retired-ca" in result.stdout
        assert "state      renew" in result.stdout


def test_inspect_escapes_what_a_terminal_would_obey(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    evil = issue_client(issue_ca(now), "a\x1b[2Jb", now)
    path = tmp_path / "evil.crt"
    path.write_bytes(evil.certificate_pem)
    result = _run("inspect", path)
    assert "\x1b" not in result.stdout
    assert "\\x1b[2Jb" in result.stdout


def test_unusable_input_is_one_line_that_names_it(tmp_path: Path) -> None:
    garbage = tmp_path / "garbage"
    garbage.write_text("Cg==")
    empty = tmp_path / "empty"
    empty.mkdir()
    for path in (garbage, empty, tmp_path / "none", Path("/dev/zero")):
        assert str(path) in _refused(_run("inspect", path))


def test_a_path_that_the_system_refuses_is_one_line_too(tmp_path: Path) -> None:
    _refused(_run("inspect", tmp_path / ("x" * 300)))
    _refused(_run("ca-bundle", tmp_path / ("x" * 300)))
    _refused(_run("issue", tmp_path / ("x" * 300), "--hostname", "a"))


@pytest.mark.parametrize("name", ["ca.crt", "ca.key", "tls.crt", "tls.key"])
def test_inspect_names_the_damaged_file_of_a_store(stored: Bundle, name: str) -> None:
    path = stored.paths.directory / name
    path.write_text("garbage")
    assert str(path) in _refused(_run("inspect", stored.paths.directory))


def test_ca_bundle_prints_what_a_webhook_configuration_wants(stored: Bundle) -> None:
    result = _run("ca-bundle", stored.paths.directory)
    assert result.exit_code == 0
    assert result.stdout.count("\n") == 1
    assert base64.b64decode(result.stdout, validate=False) == stored.ca_pem


def test_ca_bundle_never_prints_a_key(stored: Bundle) -> None:
    path = stored.paths.ca_certificate
    path.write_bytes(stored.paths.ca_key.read_bytes() + stored.ca_pem)
    printed = base64.b64decode(_run("ca-bundle", stored.paths.directory).stdout)
    assert printed == stored.ca_pem


def test_ca_bundle_refuses_a_store_without_a_usable_ca(tmp_path: Path) -> None:
    assert "ca.crt: is not there" in _refused(_run("ca-bundle", tmp_path))
    (tmp_path / "ca.crt").write_bytes(b"")
    assert "ca.crt: holds no readable" in _refused(_run("ca-bundle", tmp_path))
    expired = issue_ca(datetime.now(UTC) - timedelta(days=4000))
    (tmp_path / "ca.crt").write_bytes(expired.certificate_pem)
    assert "no unexpired certificate" in _refused(_run("ca-bundle", tmp_path))


def test_a_foreign_ca_in_a_store_is_replaced_and_stays_trusted(
    stored: Bundle,
) -> None:
    foreign = issue_ca(datetime.now(UTC), name="elsewhere")
    stored.paths.ca_certificate.write_bytes(foreign.certificate_pem)
    result = _run("issue", stored.paths.directory, "--hostname", "a.svc")
    assert _fields(result.stdout)["action"] == "rotate-ca"
    found = _run("inspect", stored.paths.directory)
    assert found.exit_code == 0
    assert "role       retired-ca\nsubject    CN=elsewhere" in found.stdout
