"""Every condition type, condition reason and event reason that Wainwright writes: one place, so that users can grep."""

from __future__ import annotations

from enum import StrEnum


class ConditionType(StrEnum):
    # NodePool
    VALIDATION_SUCCEEDED = "ValidationSucceeded"
    NODE_CLASS_READY = "NodeClassReady"
    # NodeClaim
    LAUNCHED = "Launched"
    REGISTERED = "Registered"
    INITIALIZED = "Initialized"
    DRAINED = "Drained"
    INSTANCE_TERMINATING = "InstanceTerminating"
    # both
    READY = "Ready"


class ConditionReason(StrEnum):
    """One word why a condition has its status. A True condition whose type says all repeats the type."""

    VALIDATION_SUCCEEDED = "ValidationSucceeded"
    NODE_POOL_INVALID = "NodePoolInvalid"
    NODE_CLASS_READY = "NodeClassReady"
    NODE_CLASS_NOT_READY = "NodeClassNotReady"
    NODE_CLASS_SIMULATED = "NodeClassSimulated"
    """The NodePool names another provider's NodeClass; the running provider serves it all the same."""
    CLOUD_UNREACHABLE = "CloudUnreachable"
    READY = "Ready"
    NOT_READY = "NotReady"
    UNKNOWN = "Unknown"

    LAUNCHED = "Launched"
    LAUNCHING = "Launching"
    LAUNCH_FAILED = "LaunchFailed"
    INSUFFICIENT_CAPACITY = "InsufficientCapacity"
    REGISTERED = "Registered"
    NODE_NOT_FOUND = "NodeNotFound"
    INITIALIZED = "Initialized"
    NODE_NOT_READY = "NodeNotReady"
    STARTUP_TAINTS = "StartupTaintsExist"
    RESOURCES_MISSING = "ResourceNotRegistered"
    DRAINED = "Drained"
    DRAINING = "Draining"
    INSTANCE_TERMINATING = "InstanceTerminating"


class EventReason(StrEnum):
    # Pods
    FAILED_SCHEDULING = "FailedScheduling"
    NOMINATED = "Nominated"
    EVICTED = "Evicted"
    BOUND = "Bound"
    # NodePools
    NODE_POOL_INVALID = "NodePoolInvalid"
    NODE_CLASS_NOT_READY = "NodeClassNotReady"
    NODE_POOL_READY = "NodePoolReady"
    # NodeClaims and Nodes
    LAUNCHED = "Launched"
    REGISTERED = "Registered"
    INITIALIZED = "Initialized"
    INSUFFICIENT_CAPACITY = "InsufficientCapacityError"
    LAUNCH_FAILED = "LaunchFailed"
    LAUNCH_REFUSED = "LaunchRefused"
    CLAIM_FAILED = "NodeClaimFailed"
    CLAIM_WITHDRAWN = "NodeClaimWithdrawn"
    NODE_NOT_READY = "NodeNotReady"
    TERMINATING = "Terminating"
    FAILED_DRAINING = "FailedDraining"
    FAILED_TERMINATION = "FailedTermination"
    # Everything
    CANNOT_BE_DECODED = "CannotBeDecoded"
