"""Parameters of the rule `visible-devices`."""

from gpugate.policies.framework.params import Params
from gpugate.policies.workloads.device_access import STACK_ACCOUNTS, STACK_IMAGES, AccountPatterns, ImagePatterns


class VisibleDevicesParams(Params):
    """Parameters of `visible-devices`."""

    images: ImagePatterns = STACK_IMAGES
    """Images, with `*` for any characters, that may take devices in a DaemonSet."""
    service_accounts: AccountPatterns = STACK_ACCOUNTS
    """Service accounts (`namespace/name`, `namespace/*`) whose pods may take devices."""
