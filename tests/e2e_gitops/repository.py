"""Git, as Argo CD reads it (a repository on disk), and as Flux does (archives over HTTP)."""

from __future__ import annotations

import hashlib
import http.server
import io
import os
import subprocess
import tarfile
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path
    from types import TracebackType
    from typing import Self

_IDENTITY = {
    name: value
    for role in ("AUTHOR", "COMMITTER")
    for name, value in ((f"GIT_{role}_NAME", "e2e"), (f"GIT_{role}_EMAIL", "e2e@example.com"))
}


class Repository:
    """A Git repository with a folder of manifests for each app."""

    def __init__(self, folder: Path) -> None:
        """Make an empty repository in this folder, which must not exist yet."""
        self.folder = folder
        folder.mkdir(parents=True)
        self._git("init", "--quiet", "--initial-branch=main")

    @property
    def url(self) -> str:
        """Where Argo CD finds it."""
        return f"file://{self.folder}"

    def commit(self, apps: Mapping[str, Iterable[Mapping[str, Any]]]) -> str:
        """State exactly these objects in the apps' folders, one file each, and commit; returns the revision."""
        return self.commit_files({app: as_files(objects) for app, objects in apps.items()})

    def commit_files(self, apps: Mapping[str, Mapping[str, bytes]]) -> str:
        """State exactly these files in the apps' folders, and commit; returns the revision."""
        for app, files in apps.items():
            self._git("rm", "-r", "-f", "--quiet", "--ignore-unmatch", app)
            for name, content in files.items():
                path = self.folder / app / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
        self._git("add", "--all")
        self._git("commit", "--quiet", "--allow-empty", "--message", f"State {', '.join(apps)}")
        return self._git("rev-parse", "HEAD")

    def _git(self, *args: str) -> str:
        # The settings of whoever runs the tests (signing, hooks) are none of this repository's.
        env = {**os.environ, **_IDENTITY, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
        done = subprocess.run(["git", *args], cwd=self.folder, env=env, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"git {' '.join(args)} ended with {done.returncode}: {done.stderr}")
        return done.stdout.strip()


class Artifact(NamedTuple):
    """An archive that Flux's source-controller would have made."""

    path: str
    url: str
    revision: str
    digest: str
    size: int


class ArtifactServer:
    """Serves archives of manifests on the loopback interface, as source-controller does in a cluster."""

    def __init__(self) -> None:
        """Serve from now on, on a free port."""
        archives: dict[str, bytes] = {}

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                found = archives.get(self.path)
                self.send_response(http.HTTPStatus.NOT_FOUND if found is None else http.HTTPStatus.OK)
                self.send_header("Content-Length", str(len(found or b"")))
                self.end_headers()
                self.wfile.write(found or b"")

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._archives = archives
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def publish(self, name: str, objects: Iterable[Mapping[str, Any]]) -> Artifact:
        """Serve an archive with one file for each object."""
        return self.publish_files(name, as_files(objects))

    def publish_files(self, name: str, files: Mapping[str, bytes]) -> Artifact:
        """Serve an archive with these files."""
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
            for path, content in sorted(files.items()):
                member = tarfile.TarInfo(path)
                member.size, member.mode = len(content), 0o644
                archive.addfile(member, io.BytesIO(content))
        content = buffer.getvalue()
        tree = hashlib.sha1(b"".join(path.encode() + files[path] for path in sorted(files)), usedforsecurity=False).hexdigest()
        path = f"/{name}/{tree}.tar.gz"
        self._archives[path] = content
        url = f"http://127.0.0.1:{self._server.server_port}{path}"
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        return Artifact(path.lstrip("/"), url, f"main@sha1:{tree}", digest, len(content))

    def __enter__(self) -> Self:
        """Nothing more to do: it serves already."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Serve no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def as_files(objects: Iterable[Mapping[str, Any]]) -> dict[str, bytes]:
    """One file for each object; JSON is YAML."""
    named = {f"{one['kind'].lower()}-{one['metadata']['name']}.yaml": one for one in objects}
    return {name: orjson.dumps(one, option=orjson.OPT_INDENT_2) for name, one in named.items()}
