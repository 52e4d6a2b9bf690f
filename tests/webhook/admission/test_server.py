"""The real server over real TLS: one process for most tests, what each answers, and that it still answers afterwards."""

from __future__ import annotations

import asyncio
import gzip
import socket
import ssl
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from gpugate.certs.issue import issue_ca
from gpugate.policies.engine.engine import decide
from gpugate.policies.policy.binding import PolicySet
from gpugate.policies.workloads.kinds import kind_of
from gpugate.policies.workloads.open import open_workload
from gpugate.webhook.files.inputs import load_facts, load_policies
from tests.certs.client_certificates import issue_client
from tests.shared.reviews import (
    CLUSTER,
    POLICY,
    admission,
    counted,
    cpu_pod,
    overcommitted_pod,
    patch_of,
    patched,
    pod,
    well_formed,
)
from tests.shared.running import PATIENCE, Server, serving


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("tls")
    with serving(directory, "--policy", str(POLICY), "--cluster", str(CLUSTER)) as running:
        yield running
        assert running.process.poll() is None, "the server did not survive its tests"


@pytest.fixture
def _answers_afterwards(server: Server) -> Iterator[None]:
    """Whatever was sent: the server still mutates, and no line of its log is a traceback or anything but JSON."""
    yield
    response = well_formed(server.post("/mutate", admission(pod())).body)
    assert response["allowed"]
    assert patch_of(response)
    for line in server.output:
        assert "traceback" not in orjson.loads(line), line


pytestmark = pytest.mark.usefixtures("_answers_afterwards")


def post_raw(server: Server, head: str, body: bytes = b"") -> bytes:
    """Send bytes as they are over TLS, and read until the server closes or a whole answer is there."""
    with (
        socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as plain,
        server.context().wrap_socket(plain, server_hostname="127.0.0.1") as secured,
    ):
        secured.sendall(head.encode() + body)
        return secured.recv(65536)


def test_healthz_says_ok(server: Server) -> None:
    assert server.ask("GET", "/healthz")[:2] == (200, b"ok\n")


def test_readyz_says_ok_once_facts_and_policies_are_there(server: Server) -> None:
    assert server.ask("GET", "/readyz")[:2] == (200, b"ok\n")


def test_readyz_verbose_lists_facts_and_policies(server: Server) -> None:
    answer = server.ask("GET", "/readyz?verbose")
    assert answer.status == 200
    assert {"ok", "nodes: synced", "localqueues: synced", "policy default: generation 0"} <= set(answer.text.splitlines())


def test_metrics_count_reviews_and_tell_when_the_certificate_ends(server: Server) -> None:
    series = 'gpugate_reviews_total{endpoint="mutate",kind="Pod",operation="CREATE",outcome="changed"}'
    before = counted(server.ask("GET", "/metrics").text, series)
    server.post("/mutate", admission(pod()))
    answer = server.ask("GET", "/metrics")
    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert counted(answer.text, series) == before + 1
    assert counted(answer.text, "gpugate_serving_certificate_not_after_seconds") > time.time()


def test_a_client_limited_to_tls_1_2_is_refused_by_default(server: Server) -> None:
    with pytest.raises(ssl.SSLError, match=r"(?i)protocol"):
        server.ask("GET", "/healthz", context=server.context(maximum=ssl.TLSVersion.TLSv1_2))


def test_a_connection_speaks_tls_1_3(server: Server) -> None:
    connection = server.connection()
    connection.connect()
    assert isinstance(connection.sock, ssl.SSLSocket)
    assert connection.sock.version() == "TLSv1.3"
    connection.close()


def test_a_client_that_trusts_another_ca_does_not_connect(server: Server) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        server.ask("GET", "/healthz", context=ssl.create_default_context())


def decided(obj: dict[str, Any]) -> dict[str, Any]:
    """``obj`` as the engine itself leaves it with the same policy and facts."""
    snapshot = load_facts([CLUSTER])
    after: dict[str, Any] = orjson.loads(orjson.dumps(obj))
    kind = kind_of(after["apiVersion"], after["kind"])
    assert kind is not None
    workload = open_workload(kind, after, snapshot, namespace="team-a")
    decide(workload, PolicySet(load_policies([POLICY])).bind(snapshot.namespace_labels("team-a"), workload.labels()), snapshot)
    return after


def job() -> dict[str, Any]:
    made = pod("pretrain", gpus=8)
    template = {"spec": {**made["spec"], "restartPolicy": "Never"}}
    spec = {"parallelism": 4, "completions": 4, "completionMode": "Indexed", "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": made["metadata"], "spec": spec}


@pytest.mark.parametrize("made", [pod, job])
def test_the_patch_makes_the_decided_object_which_validate_then_allows(server: Server, made: Any) -> None:
    obj = made()
    response = well_formed(server.post("/mutate", admission(obj)).body)
    after = patched(obj, response)
    assert after == decided(obj)
    assert after != obj
    again = well_formed(server.post("/validate", admission(after)).body)
    assert again["allowed"], again
    assert "patch" not in again


def test_mutating_the_patched_object_changes_nothing_more(server: Server) -> None:
    first = well_formed(server.post("/mutate", admission(pod())).body)
    second = well_formed(server.post("/mutate", admission(patched(pod(), first))).body)
    assert patch_of(second) == []


def test_validate_never_patches_and_refuses_what_mutate_was_not_asked_about(server: Server) -> None:
    response = well_formed(server.post("/validate", admission(overcommitted_pod())).body)
    assert not response["allowed"]
    assert "host-memory: spec.containers[0].resources.limits.memory: limit 48Gi" in response["status"]["message"]


def test_the_uid_comes_back(server: Server) -> None:
    assert well_formed(server.post("/mutate", admission(pod(), uid="the-very-uid")).body)["uid"] == "the-very-uid"


@pytest.mark.parametrize("endpoint", ["/mutate", "/validate"])
@pytest.mark.parametrize("made", [pod, overcommitted_pod])
def test_a_dry_run_gets_the_same_answer(server: Server, endpoint: str, made: Any) -> None:
    real = server.post(endpoint, admission(made()))
    dry = server.post(endpoint, admission(made(), dryRun=True))
    assert orjson.loads(dry.body) == orjson.loads(real.body)


@pytest.mark.parametrize("query", ["timeout=3s", "timeout=500ms", "timeout=30s", "timeout=", "other=1", "timeout=1.5s"])
def test_the_apiservers_timeout_is_understood(server: Server, query: str) -> None:
    assert well_formed(server.post(f"/mutate?{query}", admission(pod())).body)["allowed"]


@pytest.mark.parametrize("text", ["junk", "-1s", "3", "s", "1e9s", "%C2%B3s", "..5s", "NaNs", "infs", "%00", "9" * 5000])
def test_a_timeout_that_is_no_time_is_a_bad_request(server: Server, text: str) -> None:
    answer = server.post(f"/mutate?timeout={text}", admission(pod()))
    assert answer.status == 400
    assert "5s or 500ms" in answer.text


def test_a_body_that_does_not_arrive_in_time_is_given_up(server: Server) -> None:
    head = "POST /mutate?timeout=50ms HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
    assert post_raw(server, head, b'{"half":').startswith(b"HTTP/1.1 408 ")


def test_a_body_above_the_limit_is_answered_413(server: Server) -> None:
    obj = pod()
    obj["metadata"]["annotations"] = {"note": "x" * (4 * 1024 * 1024)}
    answer = server.post("/mutate", admission(obj))
    assert answer.status == 413
    assert str(4 * 1024 * 1024) in answer.text


def test_a_body_just_below_the_limit_is_judged(server: Server) -> None:
    obj = pod()
    obj["metadata"]["annotations"] = {"note": "x" * (3 * 1024 * 1024)}
    assert patch_of(well_formed(server.post("/mutate", admission(obj)).body))


BODIES: dict[str, bytes] = {
    "empty": b"",
    "blank": b" \n",
    "half": b'{"kind": "AdmissionReview", ',
    "no JSON": b"kind: AdmissionReview",
    "invalid UTF-8": orjson.dumps(admission(pod())).replace(b"team-a", b"team-\xff"),
    "half a character": orjson.dumps(admission(pod())).replace(b"team-a", b"team-\\ud800"),
    "UTF-16": orjson.dumps(admission(pod())).decode().encode("utf-16"),
    "a byte order mark": b"\xef\xbb\xbf" + orjson.dumps(admission(pod())),
    "two documents": orjson.dumps(admission(pod())) * 2,
    "NaN": b'{"kind": NaN}',
    "null": b"null",
    "a list": b"[]",
    "a string": b'"AdmissionReview"',
    "a number": b"1e400",
    "an empty object": b"{}",
    "another kind": orjson.dumps({**admission(pod()), "kind": "Pod"}),
    "v1beta1": orjson.dumps({**admission(pod()), "apiVersion": "admission.k8s.io/v1beta1"}),
    "no request": orjson.dumps({key: value for key, value in admission(pod()).items() if key != "request"}),
    "a request that is a list": orjson.dumps({**admission(pod()), "request": []}),
    "no uid": orjson.dumps(admission(pod(), uid=None)),
    "an empty uid": orjson.dumps(admission(pod(), uid="")),
    "a number as uid": orjson.dumps(admission(pod(), uid=7)),
    "no kind": orjson.dumps(admission(pod(), kind=None)),
    "a kind that is a string": orjson.dumps(admission(pod(), kind="Pod")),
    "a kind without kind": orjson.dumps(admission(pod(), kind={"group": "", "version": "v1"})),
    "a group that is a list": orjson.dumps(admission(pod(), kind={"group": [], "version": "v1", "kind": "Pod"})),
    "a version that is zero": orjson.dumps(admission(pod(), kind={"group": "", "version": 0, "kind": "Pod"})),
    "no operation": orjson.dumps(admission(pod(), operation=None)),
    "an operation that is a map": orjson.dumps(admission(pod(), operation={})),
    "a namespace that is a number": orjson.dumps(admission(pod(), namespace=1)),
    "a name that is a list": orjson.dumps(admission(pod(), name=["x"])),
    "a sub-resource that is true": orjson.dumps(admission(pod(), subResource=True)),
    "no object at CREATE": orjson.dumps(admission(None, kind={"group": "", "version": "v1", "kind": "Pod"})),
    "an object that is a list": orjson.dumps(admission(pod(), object=[pod()])),
    "an old object that is a string": orjson.dumps(admission(pod(), oldObject="Pod")),
    "100,000 levels": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "100,000 lists": b"[" * 100_000,
    "2,000 levels in spec": orjson.dumps(admission(pod())).replace(
        b'"containers"', b'"x":' + b"[" * 2000 + b"]" * 2000 + b',"containers"'
    ),
    "100,000 levels in spec": orjson.dumps(admission(pod())).replace(
        b'"containers"', b'"x":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b',"containers"'
    ),
}


@pytest.mark.parametrize("endpoint", ["/mutate", "/validate"])
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_a_body_that_is_no_review_is_a_bad_request_that_says_why(server: Server, endpoint: str, body: bytes) -> None:
    answer = server.post(endpoint, body)
    assert answer.status == 400
    assert 10 < len(answer.text) < 400
    assert answer.text.count("\n") == 1
    assert "Traceback" not in answer.text
    assert "gpugate/" not in answer.text


def test_the_old_api_version_is_told_what_to_configure(server: Server) -> None:
    answer = server.post("/mutate", BODIES["v1beta1"])
    assert "admissionReviewVersions: [v1]" in answer.text


def test_bad_requests_are_counted_by_reason(server: Server) -> None:
    server.post("/mutate", b"junk")
    server.post("/mutate", BODIES["v1beta1"])
    text = server.ask("GET", "/metrics").text
    assert counted(text, 'gpugate_bad_requests_total{reason="json"}') >= 1
    assert counted(text, 'gpugate_bad_requests_total{reason="version"}') >= 1


@pytest.mark.parametrize("levels", [300, 600, 900, 990])
def test_nesting_that_json_still_allows_is_answered(server: Server, levels: int) -> None:
    deep = b'{"a":' * levels + b"1" + b"}" * levels
    for endpoint in ("/mutate", "/validate"):
        answer = server.post(endpoint, orjson.dumps(admission(pod())).replace(b'"containers"', b'"x":' + deep + b',"containers"'))
        assert answer.status in {200, 400}
        if answer.status == 200:
            well_formed(answer.body)


@pytest.mark.parametrize("path", ["/mutate", "/validate"])
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH"])
def test_reviews_come_by_post_only(server: Server, method: str, path: str) -> None:
    answer = server.ask(method, path)
    assert answer.status == 405
    assert answer.headers["Allow"] == "POST"


@pytest.mark.parametrize("path", ["/", "/Mutate", "/mutate/", "/validate/x", "/../healthz", "/%2e%2e/etc/passwd", "/debug/pprof"])
def test_other_paths_are_not_found(server: Server, path: str) -> None:
    assert server.post(path, admission(pod())).status == 404


def test_a_connection_that_stays_open_gets_the_answer_that_a_closing_one_gets(server: Server) -> None:
    body = admission(pod())
    kept, closing = server.post("/mutate", body), server.post("/mutate", body, Connection="close")
    assert kept.body == closing.body
    length = str(len(kept.body))
    for answer in (kept, closing):
        assert answer.headers["Content-Type"] == "application/json"
        assert answer.headers["Content-Length"] == length
        assert abs(parsedate_to_datetime(answer.headers["Date"]).timestamp() - time.time()) < PATIENCE
    assert {*kept.headers} == {*closing.headers} - {"Connection"}
    assert kept.headers["Server"] == closing.headers["Server"]
    head = f"POST /mutate HTTP/1.0\r\nHost: x\r\nConnection: keep-alive\r\nContent-Length: {len(orjson.dumps(body))}\r\n\r\n"
    assert b"\r\nConnection: keep-alive\r\n" in post_raw(server, head, orjson.dumps(body))


def test_a_client_that_asks_first_is_told_to_send_its_body(server: Server) -> None:
    body = orjson.dumps(admission(pod()))
    head = f"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\nConnection: close\r\n"
    with (
        socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as plain,
        server.context().wrap_socket(plain, server_hostname="127.0.0.1") as secured,
    ):
        secured.sendall(f"{head}Expect: 100-Continue\r\n\r\n".encode())
        assert secured.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        secured.sendall(body)
        answer = secured.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert well_formed(answer.partition(b"\r\n\r\n")[2])["allowed"]
    assert post_raw(server, f"{head}Expect: cake\r\n\r\n", body).startswith(b"HTTP/1.1 417 ")


def test_a_probe_may_ask_for_the_head_alone(server: Server) -> None:
    answer = post_raw(server, "HEAD /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert not answer.partition(b"\r\n\r\n")[2]


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd"])
def test_a_body_that_is_not_compressed_as_it_says_is_a_bad_request(server: Server, encoding: str) -> None:
    answer = server.post("/mutate", b"no such encoding", **{"Content-Encoding": encoding})
    assert answer.status == 400


def test_a_compressed_body_is_read_and_a_bomb_is_not(server: Server) -> None:
    packed = gzip.compress(orjson.dumps(admission(pod())))
    assert patch_of(well_formed(server.post("/mutate", packed, **{"Content-Encoding": "gzip"}).body))
    bomb = gzip.compress(b" " * (64 << 20))
    assert server.post("/mutate", bomb, **{"Content-Encoding": "gzip"}).status == 413


@pytest.mark.parametrize(
    "head",
    [
        "GARBAGE\r\n\r\n",
        "POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
        "POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        "POST /mutate HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
        "POST /mutate HTTP/9.9\r\nHost: x\r\n\r\n",
        "GET /healthz HTTP/1.1\r\nHost: x\r\nA: " + "a" * 100_000 + "\r\n\r\n",
    ],
    ids=["garbage", "negative length", "two lengths", "bad chunk", "HTTP/9.9", "long header"],
)
def test_bytes_that_are_no_http_are_a_bad_request(server: Server, head: str) -> None:
    answer = post_raw(server, head)
    assert answer.startswith((b"HTTP/1.1 4", b"HTTP/1.0 4"))
    assert b"Traceback" not in answer


def test_a_client_that_speaks_no_tls_harms_nobody(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as plain:
        plain.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert not plain.recv(4096).startswith(b"HTTP")


def test_a_client_that_hangs_up_in_the_middle_harms_nobody(server: Server) -> None:
    head = "POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
    for _ in range(3):
        with (
            socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as plain,
            server.context().wrap_socket(plain, server_hostname="127.0.0.1") as secured,
        ):
            secured.sendall(head.encode() + b'{"half":')


def test_one_connection_serves_many_reviews_after_errors(server: Server) -> None:
    connection = server.connection()
    statuses = []
    for body in (b"junk", orjson.dumps(admission(pod())), b"", orjson.dumps(admission(overcommitted_pod()))):
        connection.request("POST", "/validate", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        response.read()
        statuses.append(response.status)
    connection.close()
    assert statuses == [400, 200, 400, 200]


def test_200_reviews_at_once_are_all_answered(server: Server) -> None:
    async def one(session: aiohttp.ClientSession, number: int) -> str:
        obj = pod(f"p{number}") if number % 2 else overcommitted_pod(f"p{number}")
        endpoint = "mutate" if number % 4 < 2 else "validate"
        body = orjson.dumps(admission(obj, uid=f"uid-{number}"))
        async with session.post(f"https://127.0.0.1:{server.port}/{endpoint}?timeout=30s", data=body) as answer:
            assert answer.status == 200
            return str(well_formed(await answer.read())["uid"])

    async def every() -> list[str]:
        connector = aiohttp.TCPConnector(limit=0, ssl=server.context())
        async with aiohttp.ClientSession(connector=connector) as session:
            return await asyncio.gather(*(one(session, number) for number in range(200)))

    assert asyncio.run(every()) == [f"uid-{number}" for number in range(200)]


def test_a_review_is_one_json_line_with_uid_object_and_decision(server: Server) -> None:
    server.post("/validate", admission(overcommitted_pod("logged-pod"), uid="uid-of-a-refusal", dryRun=True))
    line = server.logged(uid="uid-of-a-refusal")
    wanted = {
        "level": "info",
        "message": "review",
        "endpoint": "validate",
        "operation": "CREATE",
        "kind": "Pod",
        "namespace": "team-a",
        "name": "logged-pod",
        "user": "dana@example.com",
        "outcome": "refused",
        "dryRun": True,
    }
    assert {key: line.get(key) for key in wanted} == wanted
    assert "deny host-memory/Overcommit" in line["findings"]
    server.post("/mutate", admission(pod(), uid="uid-of-a-change"))
    line = server.logged(uid="uid-of-a-change")
    assert line["outcome"] == "changed"
    assert "tolerations" in line["changed"]
    server.post("/mutate", admission(cpu_pod(), uid="uid-of-nothing"))
    assert server.logged(uid="uid-of-nothing")["outcome"] == "passed"


def test_a_line_of_the_log_cannot_be_forged(server: Server) -> None:
    forged = 'x"}\n{"level":"info","message":"review","uid":"forged","outcome":"passed"}'
    server.post("/mutate", admission(pod(), uid=forged, name=forged, userInfo={"username": forged}))
    line = server.logged(uid=forged)
    assert (line["name"], line["user"]) == (forged, forged)
    assert all(orjson.loads(one)["uid"] != "forged" for one in server.output if b"forged" in one)


def test_with_a_client_ca_reviews_need_a_certificate_and_probes_do_not(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    trusted, other = issue_ca(now), issue_ca(now)
    (tmp_path / "clients.crt").write_bytes(trusted.certificate_pem)
    pairs = {"good": issue_client(trusted, "kube-apiserver", now), "foreign": issue_client(other, "kube-apiserver", now)}
    for name, pair in pairs.items():
        (tmp_path / f"{name}.pem").write_bytes(pair.certificate_pem + pair.key_pem)
    body = orjson.dumps(admission(pod()))
    options = ("--policy", str(POLICY), "--client-ca", str(tmp_path / "clients.crt"), "--tls-min-version", "1.2")
    with serving(tmp_path, *options) as running:
        assert running.ask("GET", "/healthz").status == 200
        assert running.ask("GET", "/readyz").status == 200
        assert running.ask("GET", "/metrics").status == 200
        for endpoint in ("/mutate", "/validate"):
            answer = running.ask("POST", endpoint, body)
            assert answer.status == 401
            assert "client certificate" in answer.text
        for versions in ({}, {"maximum": ssl.TLSVersion.TLSv1_2}):
            context = running.context(**versions)
            context.load_cert_chain(tmp_path / "good.pem")
            answer = running.ask("POST", "/mutate", body, context=context)
            assert answer.status == 200
            assert well_formed(answer.body)["allowed"]
        context = running.context()
        context.load_cert_chain(tmp_path / "foreign.pem")
        with pytest.raises((ssl.SSLError, ConnectionError)):
            running.ask("POST", "/mutate", body, context=context)
        assert counted(running.ask("GET", "/metrics").text, 'gpugate_bad_requests_total{reason="client-certificate"}') == 2
        running.terminate()
        assert running.wait() == 0


def test_on_sigterm_readiness_goes_first_and_the_request_under_way_is_answered(tmp_path: Path) -> None:
    body = orjson.dumps(admission(pod(), uid="under-way"))
    with serving(tmp_path, "--policy", str(POLICY), "--drain-delay", "1.5") as running:
        slow, probe = running.connection(), running.connection()
        slow.putrequest("POST", "/mutate")
        slow.putheader("Content-Type", "application/json")
        slow.putheader("Content-Length", str(len(body)))
        slow.endheaders()
        slow.send(body[:10])
        probe.connect()
        running.terminate()
        running.logged(message="draining")
        probe.request("GET", "/readyz")
        ready = probe.getresponse()
        assert (ready.status, ready.read()) == (503, b"shutting down\n")
        probe.request("GET", "/healthz")
        healthy = probe.getresponse()
        assert (healthy.status, healthy.read()) == (200, b"ok\n")
        assert well_formed(running.post("/mutate", admission(pod(), uid="newcomer")).body)["uid"] == "newcomer"
        slow.send(body[10:])
        answer = slow.getresponse()
        assert answer.status == 200
        assert answer.headers["Connection"] == "close"
        assert well_formed(answer.read())["uid"] == "under-way"
        slow.close()
        probe.close()
        assert running.wait() == 0
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", running.port), timeout=PATIENCE)
    messages = [orjson.loads(line)["message"] for line in running.output]
    assert messages == ["listening", "listening for metrics", "draining", "review", "review", "stopped"]
