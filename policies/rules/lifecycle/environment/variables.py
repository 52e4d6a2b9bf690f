"""Environment variables that the libraries on accelerators read, and what people write in their place.

Names follow the user guide of NCCL 2.30, PyTorch 2.9 ("ProcessGroupNCCL Environment Variables", "CUDA Environment Variables"), the
CUDA programming guide 13, NVIDIA's MPS and container toolkit 1.18, OpenMP 6.0, UCX 1.19 and Gloo.
"""

from functools import lru_cache
from typing import Final, NamedTuple

from gpugate.policies.kube.suggest import closest_match
from gpugate.policies.rules.lifecycle.environment.nccl import READ as NCCL

CAPABILITIES: Final = "NVIDIA_DRIVER_CAPABILITIES"
#: What the container toolkit takes there (``SupportedDriverCapabilities``).
SUPPORTED_CAPABILITIES: Final = frozenset({"all", "compat32", "compute", "display", "graphics", "ngx", "utility", "video"})


def _all(prefix: str, names: str) -> frozenset[str]:
    return frozenset(prefix + name for name in names.split())


_TORCH_NCCL: Final = _all(
    "TORCH_NCCL_",
    """
    ABORT_IN_DESTROY_PG ASYNC_ERROR_HANDLING AVOID_RECORD_STREAMS BLOCKING_WAIT COORD_CHECK_MILSEC CUDA_EVENT_CACHE
    DEBUG_INFO_PIPE_FILE DEBUG_INFO_TEMP_FILE DESYNC_DEBUG DUMP_ON_TIMEOUT ENABLE_MONITORING ENABLE_TIMING EXTRA_DUMP_ON_EXEC
    HEARTBEAT_TIMEOUT_SEC HIGH_PRIORITY LOG_CPP_STACK_ON_UNCLEAN_SHUTDOWN NAN_CHECK NONBLOCKING_TIMEOUT PROPAGATE_ERROR
    RANKS_PER_ROOT RETHROW_CUDA_ERRORS SHOW_EAGER_INIT_P2P_SERIALIZATION_WARNING TRACE_BUFFER_SIZE TRACE_CPP_STACK
    USE_COMM_NONBLOCKING USE_TENSOR_REGISTER_ALLOCATOR_HOOK WAIT_TIMEOUT_DUMP_MILSEC
    """,
)
_PYTORCH: Final = _all(
    "PYTORCH_",
    """
    ALLOC_CONF CUDA_ALLOC_CONF HIP_ALLOC_CONF CUDA_NVRTC CUDA_NVFUSER_DISABLE_FALLBACK ENABLE_MPS_FALLBACK JIT KERNEL_CACHE_PATH
    MPS_HIGH_WATERMARK_RATIO MPS_LOW_WATERMARK_RATIO NO_CUDA_MEMORY_CACHING NVFUSER_DISABLE NVML_BASED_CUDA_CHECK VERSION
    """,
)
_CUDA: Final = _all(
    "CUDA_",
    """
    AUTO_BOOST BINARY_LOADER_THREAD_COUNT CACHE_DISABLE CACHE_MAXSIZE CACHE_PATH COREDUMP_FILE DEVICE_MAX_CONNECTIONS
    DEVICE_MAX_COPY_CONNECTIONS DEVICE_ORDER DISABLE_JIT DISABLE_PERF_BOOST DISABLE_PTX_JIT ENABLE_COREDUMP_ON_EXCEPTION
    ENABLE_CPU_COREDUMP_ON_EXCEPTION FORCE_JIT FORCE_PRELOAD_LIBRARIES FORCE_PTX_JIT GRAPHS_USE_NODE_PRIORITY HOME
    INJECTION64_PATH LAUNCH_BLOCKING LOG_FILE MANAGED_FORCE_DEVICE_ALLOC MODULE_DATA_LOADING MODULE_LOADING
    MPS_ACTIVE_THREAD_PERCENTAGE MPS_CLIENT_PRIORITY MPS_ENABLE_PER_CTX_DEVICE_MULTIPROCESSOR_PARTITIONING
    MPS_LOG_DIRECTORY MPS_PINNED_DEVICE_MEM_LIMIT MPS_PIPE_DIRECTORY PATH ROOT SCALE_LAUNCH_QUEUES VERSION VISIBLE_DEVICES
    DEVICE_DEFAULT_PERSISTING_L2_CACHE_PERCENTAGE_LIMIT
    """,
)
_NVIDIA: Final = _all(
    "NVIDIA_",
    """
    CTK_LIBCUDA_DIR DISABLE_REQUIRE DRIVER_CAPABILITIES GDRCOPY GDS IMEX_CHANNELS MIG_CONFIG_DEVICES MIG_MONITOR_DEVICES MOFED
    NVSWITCH PRODUCT_NAME REQUIRE_ARCH REQUIRE_BRAND REQUIRE_CUDA REQUIRE_DRIVER TF32_OVERRIDE VISIBLE_DEVICES
    """,
)
_OPENMP: Final = _all(
    "OMP_",
    """
    AFFINITY_FORMAT ALLOCATOR AVAILABLE_DEVICES CANCELLATION DEBUG DEFAULT_DEVICE DISPLAY_AFFINITY DISPLAY_ENV DYNAMIC
    MAX_ACTIVE_LEVELS MAX_TASK_PRIORITY NESTED NUM_TEAMS NUM_THREADS PLACES PROC_BIND SCHEDULE STACKSIZE TARGET_OFFLOAD
    TEAMS_THREAD_LIMIT THREADS_RESERVE THREAD_LIMIT TOOL TOOL_LIBRARIES TOOL_VERBOSE_INIT WAIT_POLICY
    """,
)
_UCX: Final = _all(
    "UCX_",
    """
    CUDA_COPY_DMABUF CUDA_IPC_CACHE HANDLE_ERRORS IB_GID_INDEX IB_GPU_DIRECT_RDMA IB_PCI_RELAXED_ORDERING IB_PKEY IB_SL
    IB_TRAFFIC_CLASS LOG_FILE LOG_LEVEL MAX_EAGER_RAILS MAX_RNDV_RAILS MEMTYPE_CACHE MODULES NET_DEVICES PROTO_ENABLE PROTO_INFO
    RC_TIMEOUT RNDV_FRAG_MEM_TYPE RNDV_SCHEME RNDV_THRESH SHM_DEVICES SOCKADDR_TLS_PRIORITY TLS UNIFIED_MODE WARN_UNUSED_ENV_VARS
    """,
)
_GLOO: Final = frozenset({"GLOO_SOCKET_IFNAME", "GLOO_DEVICE_TRANSPORT", "TP_SOCKET_IFNAME"})

#: Who reads the variables of a prefix, and which; a longer prefix before one that it begins with.
_FAMILIES: Final = (
    ("NCCL_", "NCCL", NCCL | {"NCCL_VERSION"}),
    ("TORCH_NCCL_", "PyTorch", _TORCH_NCCL),
    ("PYTORCH_", "PyTorch", _PYTORCH),
    ("CUDA_", "CUDA", _CUDA),
    ("NVIDIA_", "the NVIDIA container toolkit", _NVIDIA),
    ("OMP_", "OpenMP", _OPENMP),
    ("UCX_", "UCX", _UCX),
    ("GLOO_", "Gloo", _GLOO),
)
_PREFIXES: Final = tuple(prefix for prefix, _, _ in _FAMILIES)
#: What is written for a variable that means the same, where the two names do not look alike.
_MEANT: Final = {
    "NCCL_DEBUG_LEVEL": "NCCL_DEBUG",
    "NCCL_LOG_LEVEL": "NCCL_DEBUG",
    "NCCL_GDR_LEVEL": "NCCL_NET_GDR_LEVEL",
    "NCCL_IB_DEVICE": "NCCL_IB_HCA",
    "NCCL_IB_DEVICES": "NCCL_IB_HCA",
    "NCCL_IFNAME": "NCCL_SOCKET_IFNAME",
    "NCCL_NET_IFNAME": "NCCL_SOCKET_IFNAME",
    "NCCL_SOCKET_INTERFACE": "NCCL_SOCKET_IFNAME",
    "NCCL_SOCKET_DEVICE": "NCCL_SOCKET_IFNAME",
    "NCCL_TOPOLOGY": "NCCL_TOPO_FILE",
    "NCCL_TOPO_XML": "NCCL_TOPO_FILE",
    "NVIDIA_GPUS": "NVIDIA_VISIBLE_DEVICES",
    "NVIDIA_CAPABILITIES": CAPABILITIES,
    "GLOO_IFNAME": "GLOO_SOCKET_IFNAME",
    "GLOO_SOCKET_INTERFACE": "GLOO_SOCKET_IFNAME",
    "OMP_THREADS": "OMP_NUM_THREADS",
}
#: Names that were given up: what replaced them, and which version did it.
_FORMER: Final = {
    "NCCL_ASYNC_ERROR_HANDLING": ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "PyTorch 2.2"),
    "NCCL_BLOCKING_WAIT": ("TORCH_NCCL_BLOCKING_WAIT", "PyTorch 2.2"),
    "NCCL_DESYNC_DEBUG": ("TORCH_NCCL_DESYNC_DEBUG", "PyTorch 2.2"),
    "NCCL_ENABLE_TIMING": ("TORCH_NCCL_ENABLE_TIMING", "PyTorch 2.2"),
    "NCCL_USE_COMM_NONBLOCKING": ("TORCH_NCCL_USE_COMM_NONBLOCKING", "PyTorch 2.2"),
    "NCCL_IB_CUDA_SUPPORT": ("NCCL_NET_GDR_LEVEL", "NCCL 2.4"),
    "NCCL_IB_GDR_LEVEL": ("NCCL_NET_GDR_LEVEL", "NCCL 2.4"),
    "NCCL_LL_THRESHOLD": ("NCCL_PROTO", "NCCL 2.5"),
    "NCCL_TREE_THRESHOLD": ("NCCL_ALGO", "NCCL 2.5"),
}


class Lesson(NamedTuple):
    """What is to be said of a variable's name.

    Attributes:
        proper: the name to write instead.
        reader: who reads variables like it, and not this one.
        since: the version that gave the name up; empty where it never was one.
    """

    proper: str
    reader: str
    since: str = ""


@lru_cache(maxsize=4096)
def lesson(name: str) -> Lesson | None:
    """What is to be said of a variable called ``name``; None where it is read, or nobody knows what is meant."""
    if name in _FORMER:
        proper, since = _FORMER[name]
        return Lesson(proper, since.partition(" ")[0], since)
    for prefix, reader, known in _FAMILIES:
        if name.startswith(prefix):
            meant = None if name in known else _MEANT.get(name) or closest_match(name, known)
            return None if meant is None else Lesson(meant, reader)
    return None


def is_of_interest(name: str) -> bool:
    """Whether the name of a variable is one that :func:`lesson` could say something of."""
    return name.startswith(_PREFIXES)
