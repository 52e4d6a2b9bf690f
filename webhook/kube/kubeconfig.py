# The kubernetes package ships py.typed, yet most of its functions carry no annotations.
# mypy: untyped-calls-exclude=kubernetes
"""Connect to the cluster that a kubeconfig or a service account names."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from kubernetes.aio.client import Configuration
from kubernetes.aio.config import load_incluster_config
from kubernetes.aio.config.incluster_config import SERVICE_TOKEN_FILENAME
from kubernetes.aio.config.kube_config import ConfigNode, KubeConfigLoader, KubeConfigMerger

from gpugate.webhook.kube.client import ApiClient, LoadConfiguration
from gpugate.webhook.kube.errors import ClusterConfigError

_LOAD_SECONDS = 60.0  # exec plugins may prompt a person
_SERVICE_TOKEN = Path(SERVICE_TOKEN_FILENAME)


async def connect(kubeconfig: Path | None = None, context: str | None = None) -> ApiClient:
    """Make a client for the cluster of a kubeconfig and one of its contexts; no request is sent.

    Without both: the service account of the pod if there is one, else the default kubeconfig (``KUBECONFIG``, then
    ``~/.kube/config``) and its current context.

    Raises:
        ClusterConfigError: the configuration is missing or unusable.
    """
    where = str(kubeconfig or os.environ.get("KUBECONFIG") or Path.home() / ".kube" / "config")
    load: LoadConfiguration = partial(_from_kubeconfig, where, context)
    if kubeconfig is None and context is None and _SERVICE_TOKEN.is_file():  # noqa: ASYNC240
        where, load = f"the service account in {_SERVICE_TOKEN.parent}", partial(_in_cluster)
    with _config_errors(where):
        return ApiClient(await load(), load)


async def _in_cluster() -> Configuration:
    """Read the pod's service account; the configuration rereads its token every minute."""
    configuration = Configuration()
    load_incluster_config(configuration)
    return configuration


async def _from_kubeconfig(where: str, context: str | None) -> Configuration:
    """Read one context of the file, or of the list of files to merge, that `where` names."""
    configuration = Configuration()
    with _config_errors(where):
        merged = KubeConfigMerger(where).config
        chosen = _context_of(merged, where, context)
        loader = KubeConfigLoader(merged, active_context=chosen, config_base_path=None)
        async with asyncio.timeout(_LOAD_SECONDS):
            await loader.load_and_set(configuration)
        name = loader.current_context["context"].get("user")
        user = merged["users"].get_with_name(name, safe=True) or {"user": {}}
        value = configuration.api_key or configuration.cert_file
        if "exec" in user["user"] and not value:  # the loader only logs a failed plugin
            message = f"the exec plugin of {where} returned no credentials: run its command by hand"
            raise ClusterConfigError(message)
    return configuration


def _context_of(merged: ConfigNode | None, where: str, context: str | None) -> str:
    if merged is None:
        message = f"there is no kubeconfig at {where}: give another file, or set KUBECONFIG"
        raise ClusterConfigError(message)
    known = [entry["name"] for entry in merged.value["contexts"]]
    chosen = context or merged.value.get("current-context")
    if chosen not in known:
        message = f"{where} has no context {chosen or 'in use'}: choose one of {', '.join(known)}"
        raise ClusterConfigError(message)
    return str(chosen)


@contextmanager
def _config_errors(where: str) -> Iterator[None]:
    try:
        yield
    except ClusterConfigError:
        raise
    except Exception as error:  # the loader raises TypeError and others for a malformed file
        reason = str(error) or type(error).__name__
        message = f"{where} gives no access to a cluster: {reason}; correct it or give another"
        raise ClusterConfigError(message) from error
