"""`make demo`: the main job without a cluster.

First `gpugate review` judges the example workloads against the example cluster. Then `gpugate serve` runs on loopback over
TLS, the same objects are sent to it the way a kube-apiserver sends them, and both answers are laid side by side.
"""

from __future__ import annotations

import base64
import http.client
import os
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import jsonpatch
import orjson
from rich.columns import Columns
from rich.console import Console
from rich.panel import Panel
from rich.syntax import Syntax
from rich.table import Table

from gpugate.webhook.files.documents import Document, read_all
from gpugate.webhook.files.yaml import dump

HERE = Path(os.path.relpath(Path(__file__).parent))
GPUGATE = Path(sys.executable).with_name("gpugate")
SURROUNDINGS = ["--policy", str(HERE / "policy.yaml"), "--cluster", str(HERE / "cluster.yaml")]
SHOWN = ("05-training-job-no-shm.yaml", "16-legacy-name.yaml")
STYLES = {"changed": "cyan", "refused": "red", "clean": "green", "skipped": "dim", "invalid": "bold red"}
SIDE_BY_SIDE = 110
RECORD = "gpugate.io/mutations"
RESOURCES = {"Pod": "pods", "Job": "jobs", "CronJob": "cronjobs"}


class Answer(NamedTuple):
    """What the webhook made of one object."""

    outcome: str
    after: Any
    message: str
    milliseconds: float


def reviewed(console: Console) -> list[dict[str, Any]]:
    """What `gpugate review` says of every example; shown to the reader as text, and kept as JSON."""
    command = [str(GPUGATE), "review", str(HERE / "workloads"), *SURROUNDINGS]
    console.rule("[bold]1. gpugate review[/]  examples/workloads --policy examples/policy.yaml --cluster examples/cluster.yaml")
    color = "always" if console.is_terminal else "never"
    subprocess.run([*command, "--no-diff", "--color", color], check=False)  # noqa: S603
    listed = subprocess.run([*command, "-o", "json"], check=False, capture_output=True)  # noqa: S603
    entries: list[dict[str, Any]] = orjson.loads(listed.stdout)
    return entries


@contextmanager
def door(folder: Path) -> Iterator[http.client.HTTPSConnection]:
    """A connection to a `gpugate serve` of our own, with TLS verified against its own CA."""
    log = folder / "gpugate.log"
    command = [str(GPUGATE), "serve", "--listen", "127.0.0.1:0", "--self-signed", str(folder / "tls"), "--drain-delay", "0"]
    # A cluster has the claim templates of its workloads; a review finds them beside the workloads.
    command += [*SURROUNDINGS, "--cluster", str(HERE / "workloads" / "26-dra-claim.yaml")]
    with log.open("wb") as stream, subprocess.Popen(command, stderr=stream) as server:  # noqa: S603
        try:
            port = _port(server, log)
            context = ssl.create_default_context(cafile=str(folder / "tls" / "ca.crt"))
            connection = http.client.HTTPSConnection("localhost", port, context=context, timeout=10)
            # The first request pays for the TLS handshake; the table is about reviews.
            connection.request("GET", "/healthz")
            connection.getresponse().read()
            yield connection
        finally:
            server.terminate()
            server.wait(15)


def _port(server: subprocess.Popen[bytes], log: Path) -> int:
    deadline = time.monotonic() + 20
    while server.poll() is None and time.monotonic() < deadline:
        for line in log.read_bytes().splitlines():
            if b'"listening"' in line:
                return int(orjson.loads(line)["address"].rpartition(":")[2])
        time.sleep(0.02)
    sys.exit(f"gpugate serve did not start:\n{log.read_text()}")


def admission_review(uid: str, obj: dict[str, Any]) -> dict[str, Any]:
    """The review that an apiserver sends when somebody creates ``obj``."""
    group, _, version = obj["apiVersion"].rpartition("/")
    resource = RESOURCES.get(obj["kind"], obj["kind"].lower() + "s")
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": uid,
            "kind": {"group": group, "version": version, "kind": obj["kind"]},
            "resource": {"group": group, "version": version, "resource": resource},
            "name": obj["metadata"].get("name", ""),
            "namespace": obj["metadata"].get("namespace", "default"),
            "operation": "CREATE",
            "userInfo": {"username": "demo"},
            "object": obj,
            "oldObject": None,
            "dryRun": False,
        },
    }


def _post(connection: http.client.HTTPSConnection, path: str, uid: str, obj: dict[str, Any]) -> dict[str, Any]:
    connection.request("POST", f"{path}?timeout=5s", orjson.dumps(admission_review(uid, obj)), {"Content-Type": "application/json"})
    response: dict[str, Any] = orjson.loads(connection.getresponse().read())["response"]
    return response


def through_the_door(connection: http.client.HTTPSConnection, uid: str, obj: dict[str, Any]) -> Answer:
    """``obj`` sent to /mutate, patched as the apiserver would patch it, and sent on to /validate."""
    started = time.perf_counter()
    mutated = _post(connection, "/mutate", uid, obj)
    patch = orjson.loads(base64.b64decode(mutated["patch"])) if "patch" in mutated else []
    after = jsonpatch.apply_patch(obj, patch)
    judged = _post(connection, "/validate", uid, after)
    milliseconds = 1000 * (time.perf_counter() - started)
    if not judged["allowed"]:
        return Answer("refused", after, judged["status"]["message"], milliseconds)
    return Answer("changed" if patch else "clean", after, "", milliseconds)


def without_record(obj: Any) -> Any:
    """``obj`` without the note in which the door records its edits for later updates; a review of files writes none."""
    metadata = dict(obj.get("metadata") or {})
    annotations = {key: value for key, value in (metadata.get("annotations") or {}).items() if key != RECORD}
    metadata.pop("annotations", None)
    return {**obj, "metadata": {**metadata, "annotations": annotations} if annotations else metadata}


def agrees(entry: dict[str, Any], before: dict[str, Any], answer: Answer) -> bool:
    """Whether the webhook decided as the review did: same outcome, and the same object or the same reasons."""
    if answer.outcome == "refused":
        return all(one["message"] in answer.message for one in entry["findings"] if one["severity"] == "deny")
    return without_record(jsonpatch.apply_patch(before, entry["patch"])) == without_record(answer.after)


def show(console: Console, title: str, before: Any, after: Any) -> None:
    """One object before and after, side by side where there is room."""
    width = console.width // 2 - 2 if console.width >= SIDE_BY_SIDE else console.width
    panels = [
        Panel(Syntax(dump(value), "yaml", background_color="default", word_wrap=True), title=f"{title}: {when}", width=width)
        for when, value in (("sent", before), ("stored", without_record(after)))
    ]
    console.print(Columns(panels, padding=(0, 1)))


def main() -> int:
    """Run the demo; 1 where review and webhook disagree."""
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 140)
    started = time.monotonic()
    entries = reviewed(console)
    objects = [one.value for one in read_all([str(HERE / "workloads")]) if isinstance(one, Document)]
    console.print()
    console.rule("[bold]2. gpugate serve[/]  the same objects as AdmissionReviews, over TLS 1.3 on loopback")
    table = Table("example", "object", "gpugate review", "webhook", "the same", "ms for both doors", box=None, header_style="bold")
    disagreements = 0
    pairs: dict[str, tuple[Any, Any]] = {}
    with tempfile.TemporaryDirectory() as folder, door(Path(folder)) as connection:
        for number, (entry, obj) in enumerate(zip(entries, objects, strict=True)):
            if entry["outcome"] == "skipped":
                continue
            answer = through_the_door(connection, f"demo-{number}", obj)
            same = answer.outcome == entry["outcome"] and agrees(entry, obj, answer)
            disagreements += not same
            file = Path(entry["file"]).name
            pairs[file] = (obj, answer.after)
            outcomes = (f"[{STYLES[one]}]{one}[/]" for one in (entry["outcome"], answer.outcome))
            title = f"{entry['kind']} {entry['namespace']}/{entry['name']}"
            table.add_row(file, title, *outcomes, "yes" if same else "[bold red]NO[/]", f"{answer.milliseconds:.1f}")
        connection.close()
    console.print(table)
    console.print()
    console.rule("[bold]3. Before and after[/]")
    for file in SHOWN:
        show(console, file, *pairs[file])
    verdict = "review and webhook agree on all" if not disagreements else f"[bold red]{disagreements} disagreements[/] among"
    console.print(f"\n[bold]{verdict} {table.row_count} workloads[/], in {time.monotonic() - started:.1f} s.")
    console.print("Next: .venv/bin/gpugate review YOUR-MANIFESTS, or `make help`.")
    return 1 if disagreements else 0


if __name__ == "__main__":
    sys.exit(main())
