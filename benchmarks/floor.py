"""The floor: the least that an admission webhook in this stack can do (parse, answer, TLS), for comparison."""

from __future__ import annotations

import asyncio
import ssl
import sys

import orjson
import uvloop
from aiohttp import web

#: Largest body: what an apiserver sends at most for two objects. Bytes.
_LARGEST = 8 << 20


async def _answer(request: web.Request) -> web.Response:
    review = orjson.loads(await request.read())
    answer = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": review["request"]["uid"], "allowed": True},
    }
    return web.Response(body=orjson.dumps(answer), headers={"Content-Type": "application/json"})


async def _serve(certificate: str, key: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(certificate, key)
    app = web.Application(client_max_size=_LARGEST)
    app.router.add_post("/mutate", _answer)
    app.router.add_post("/validate", _answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    print(
        orjson.dumps({"message": "listening", "address": f"127.0.0.1:{runner.addresses[0][1]}"}).decode(),
        file=sys.stderr,
        flush=True,
    )
    await asyncio.Event().wait()


def main() -> None:
    """Serve until killed."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(*sys.argv[1:]))


if __name__ == "__main__":
    main()
