"""The serving certificate of a replica: the last usable pair of its files, whatever becomes of the files."""

import asyncio
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

from gpugate.certs import files
from gpugate.certs.inspect import CertificateError, CertificateInfo, timestamp
from gpugate.certs.issue import KeyPair, Lifetimes, issue_ca
from gpugate.certs.serving import check_pair, unusable
from gpugate.certs.verify import CertificateProblem, ProblemKind
from gpugate.webhook.admission import tls
from gpugate.webhook.admission.metrics import Metrics
from gpugate.webhook.runtime.log import Log

#: Seconds between two checks of the files; the kubelet updates a mounted Secret within a minute or two.
_INTERVAL: Final = 10.0
#: Seconds between two checks while the files have a problem or the replica is not ready.
_RETRY: Final = 2.0
#: The last second of the year 9999, the latest time that a datetime has.
_LATEST: Final = 253_402_300_799.0
#: Name and time of the placeholder, which has ended whatever the clock says.
_PLACEHOLDER: Final = "gpugate without a certificate"
_LONG_AGO: Final = datetime(2000, 1, 1, tzinfo=UTC)
_A_DAY: Final = timedelta(days=1)


class CertificateFiles(NamedTuple):
    """Paths of the files that a replica serves with.

    Attributes:
        bundle: CAs to which the certificate must chain; it need not exist.
    """

    certificate: Path
    key: Path
    bundle: Path


@dataclass(frozen=True, slots=True)
class _Found:
    """The files at one time: the pair with its context if it may be served, or the problem."""

    pair: KeyPair | None = None
    info: CertificateInfo | None = None
    context: ssl.SSLContext | None = None
    problem: CertificateProblem | None = None
    bundle_problem: CertificateProblem | None = None


class ServingCertificate:
    """Serves the last usable pair, and says whether the replica is ready by it.

    Each handshake takes the context of the pair in service. A pair is loaded into a fresh context: OpenSSL keeps one
    certificate for each type of key, and one that it refuses halfway breaks the context that it is loaded into.

    Attributes:
        context: the context to listen with.
    """

    def __init__(
        self,
        paths: CertificateFiles,
        new_context: Callable[[], ssl.SSLContext],
        log: Log,
        metrics: Metrics,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Load the pair of the files; without a usable one, listen with a placeholder that no client trusts."""
        self._paths, self._new_context, self._log, self._metrics, self._clock = paths, new_context, log, metrics, clock
        self._pair: KeyPair | None = None
        self._info: CertificateInfo | None = None
        self._problem: CertificateProblem | None = None
        self._suspected = False
        self._told: tuple[CertificateProblem, ...] = ()
        found = self._find()
        self.context = self._current = found.context or self._placeholder()
        self.context.sni_callback = self._choose
        self._take(found, at_once=True)

    @property
    def not_ready(self) -> str:
        """Return why the replica is not ready; empty if it serves a certificate that is valid now."""
        problem = self._problem
        if self._info is None:
            return f"there is no usable serving certificate: {_text(problem)}"
        now = self._clock()
        if now > self._info.not_after.timestamp():
            moment = f"ended at {timestamp(self._info.not_after)}"
        elif now < self._info.not_before.timestamp():
            moment = f"begins only at {timestamp(self._info.not_before)}"
        else:
            return ""
        is_same = problem is None or problem.kind in {ProblemKind.SERVING_EXPIRED, ProblemKind.SERVING_NOT_YET}
        files = "; correct the clock, or issue a new one" if is_same else f", and its files are no better: {_text(problem)}"
        return f"the serving certificate {moment}{files}"

    async def watch(self) -> None:
        """Check the files until cancelled, and serve a new pair to new connections."""
        while True:
            await asyncio.sleep(_RETRY if self._problem or self.not_ready else _INTERVAL)
            await self.check()

    async def check(self) -> None:
        """Check the files once; report a problem that the check before found, too."""
        # In a thread: the files may be large, or on a slow volume.
        self._take(await asyncio.to_thread(self._find), at_once=False)

    def _choose(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = self._current

    def _placeholder(self) -> ssl.SSLContext:
        # The kubelet's probes verify no certificate: the replica stays alive, and says why it is not ready.
        context = self._new_context()
        tls.use_pair(context, issue_ca(_LONG_AGO, Lifetimes(ca=_A_DAY, serving=_A_DAY), name=_PLACEHOLDER))
        return context

    def _now(self) -> datetime:
        return datetime.fromtimestamp(min(max(self._clock(), 0.0), _LATEST), UTC)

    def _find(self) -> _Found:
        """Read and check the files; no content of theirs raises."""
        try:
            return self._read_and_check()
        except Exception as error:  # noqa: BLE001 - the replica goes on with the last pair
            problem = f"the check of the certificate files failed: {error!r}"
            return _Found(problem=CertificateProblem(ProblemKind.DAMAGED, problem, "issue a new pair"))

    def _read_and_check(self) -> _Found:
        try:
            pair = KeyPair(files.read_regular(self._paths.certificate), files.read_regular(self._paths.key))
        except CertificateError as error:
            return _Found(problem=unusable(ProblemKind.UNREADABLE, error))
        bundle, unreadable = b"", None
        try:
            bundle = files.read_if_there(self._paths.bundle) or b""
        except CertificateError as error:
            unreadable = unusable(ProblemKind.DAMAGED_BUNDLE, error)
        check = check_pair(pair, bundle, self._now())
        bundle_problem = unreadable or check.bundle_problem
        if check.problem is not None:
            return _Found(problem=check.problem, bundle_problem=bundle_problem)
        context = None
        if pair != self._pair:
            try:
                context = self._new_context()
                tls.use_pair(context, pair)
            except OSError as error:
                remedy = "issue a pair with ECDSA P-256 or RSA 2048"
                problem = CertificateProblem(ProblemKind.UNSUPPORTED, f"TLS does not accept the pair: {tls.reason(error)}", remedy)
                return _Found(problem=problem, bundle_problem=bundle_problem)
        return _Found(pair, check.info, context, bundle_problem=bundle_problem)

    def _take(self, found: _Found, *, at_once: bool) -> None:
        """Serve what was found, or keep the last pair; report problems that a second check confirms, or ``at_once``."""
        problems = tuple(problem for problem in (found.problem, found.bundle_problem) if problem is not None)
        self._problem = found.problem
        if found.context is not None and found.info is not None:
            self._pair, self._info, self._current = found.pair, found.info, found.context
            self._metrics.certificate.set(found.info.not_after.timestamp())
            if not at_once:
                file, ends = str(self._paths.certificate), timestamp(found.info.not_after)
                self._log.info("serving certificate reloaded", file=file, ends=ends)
        # Two plain files are not replaced at once: half of a new pair is no problem yet.
        if not problems or not (self._suspected or at_once):
            self._suspected = bool(problems)
            self._told = self._told if problems else ()
            return
        self._suspected = True
        for problem in problems:
            self._metrics.certificate_rejected(problem.kind)
        if problems != self._told:
            self._told = problems
            self._report(found)

    def _report(self, found: _Found) -> None:
        if found.problem is not None:
            message = "serving certificate not loaded" if self._info else "no usable serving certificate"
            self._log_problem(message, found.problem)
        if found.bundle_problem is not None:
            self._log_problem("serving certificate not compared with its CA bundle", found.bundle_problem)

    def _log_problem(self, message: str, problem: CertificateProblem) -> None:
        serving = timestamp(self._info.not_after) if self._info else "none"
        self._log.warning(message, reason=problem.kind, error=_text(problem), serving_until=serving)


def _text(problem: CertificateProblem | None) -> str:
    return f"{problem.message}; {problem.remedy}" if problem is not None else "it was not checked yet"
