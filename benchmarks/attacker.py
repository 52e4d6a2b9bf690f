"""A ServiceAccount that sends the worst bodies to a real apiserver in a loop, from a process of its own, until SIGTERM.

Every connection sends one body after the other, each begins at another one, and waits for the answer before the next. At the
end it prints one line of JSON: how many requests got which status, for each body.
"""

from __future__ import annotations

import argparse
import http.client
import signal
import ssl
import sys
import threading
import urllib.parse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

from benchmarks.attack_bodies import DENSEST, WORST, Body, body

#: Printed when every connection has had its first answer.
SENDING = "every connection has had an answer"
_TIMEOUT = 60.0


class Connection:
    """One kept-alive connection to an apiserver, with a token."""

    def __init__(self, server: str, ca: Path, token: str) -> None:
        url = urllib.parse.urlsplit(server)
        context = ssl.create_default_context(cafile=ca)
        self._http = http.client.HTTPSConnection(url.hostname or "", url.port, context=context, timeout=_TIMEOUT)
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json", "Accept": "application/json"}

    def send(self, method: str, path: str, content: bytes) -> tuple[int, bytes]:
        """Send a request; return status and body of the answer, or status 0 if there was none."""
        try:
            self._http.request(method, path, content, self._headers)
            answer = self._http.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException) as error:
            self._http.close()
            return 0, str(error).encode()

    def close(self) -> None:
        """Close the connection."""
        self._http.close()


class Attack:
    """Sends bodies over several connections until it is stopped."""

    def __init__(self, connections: Sequence[Connection], bodies: Sequence[Body]) -> None:
        self._bodies = bodies
        self._ended = threading.Event()
        self._counts: Counter[tuple[str, int]] = Counter()
        self._first = threading.Barrier(len(connections) + 1)
        self._threads = [threading.Thread(target=self._send, args=(one, at)) for at, one in enumerate(connections)]

    def run(self) -> dict[str, dict[str, int]]:
        """Send until `stop`; return the number of answers by name of the body and status."""
        for thread in self._threads:
            thread.start()
        self._first.wait()
        print(orjson.dumps({"message": SENDING}).decode(), flush=True)
        for thread in self._threads:
            thread.join()
        return {
            one.name: {str(status): count for (name, status), count in sorted(self._counts.items()) if name == one.name}
            for one in self._bodies
        }

    def stop(self, *_: object) -> None:
        """Let every connection end after the answer that it waits for."""
        self._ended.set()

    def _send(self, connection: Connection, first: int) -> None:
        at = first
        while not self._ended.is_set():
            sent = self._bodies[at % len(self._bodies)]
            status, _ = connection.send(sent.method, sent.path, sent.content)
            self._counts[sent.name, status] += 1
            if at == first:
                self._first.wait()
            at += 1
        connection.close()


def main() -> int:
    """Send until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", required=True, help="URL of the apiserver")
    parser.add_argument("--ca", type=Path, required=True, help="certificate of its CA")
    parser.add_argument("--token-file", type=Path, required=True, help="token of the ServiceAccount")
    parser.add_argument("--namespace", required=True, help="where the objects are created")
    parser.add_argument("--connections", type=int, default=8, help="requests at once")
    parser.add_argument("--densest", action="store_true", help="the bodies that can be sent most often, instead of the costliest")
    options: Any = parser.parse_args()
    token = options.token_file.read_text(encoding="ascii")
    bodies = [body(name, options.namespace) for name in (DENSEST if options.densest else WORST)]
    attack = Attack([Connection(options.server, options.ca, token) for _ in range(options.connections)], bodies)
    signal.signal(signal.SIGTERM, attack.stop)
    print(orjson.dumps({"message": "sent", "answers": attack.run()}).decode(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
