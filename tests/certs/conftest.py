"""What the certificate tests share: a fixed now, and a CA with a serving pair."""

from datetime import UTC, datetime

import pytest

from gpugate.certs.issue import KeyPair, issue_ca, issue_serving


@pytest.fixture(scope="session")
def now() -> datetime:
    return datetime(2031, 5, 17, 12, 0, 0, 250_000, tzinfo=UTC)


@pytest.fixture(scope="session")
def ca(now: datetime) -> KeyPair:
    return issue_ca(now)


@pytest.fixture(scope="session")
def other_ca(now: datetime) -> KeyPair:
    return issue_ca(now)


@pytest.fixture(scope="session")
def serving(ca: KeyPair, now: datetime) -> KeyPair:
    return issue_serving(ca, ["gpugate.system.svc", "127.0.0.1"], now)
