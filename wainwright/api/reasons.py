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
    # PodAutoscaler
    ACTIVE = "Active"
    SCALE_TARGET_INITIALIZED = "ScaleTargetInitialized"
    METRICS_AVAILABLE = "MetricsAvailable"
    SETTINGS_VALID = "SettingsValid"
    SCALE_TARGET_FOUND = "ScaleTargetFound"
    # all
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

    # PodAutoscaler. The Active condition takes Knative's (wainwright.autoscaling.conditions), and:
    ACTIVE = "Active"
    NO_SOURCE_AT_ZERO = "NoSourceAtZero"
    """One pod stays without load, because no source could see load at zero."""
    INITIALIZED_ONCE = "InitialScaleReached"
    NOT_INITIALIZED = "InitialScaleNotReached"
    METRICS_AVAILABLE = "MetricsAvailable"
    NOT_COLLECTED = "NotCollectedYet"
    COLLECTION_FAILED = "CollectionFailed"
    NO_SAMPLES = "DidNotReceiveStat"
    CLOCK_WENT_BACK = "ClockWentBack"
    PODS_UNKNOWN = "ReadyPodsUnknown"
    SETTINGS_VALID = "SettingsValid"
    INVALID_SETTINGS = "InvalidSettings"
    TARGET_FOUND = "TargetFound"
    TARGET_NOT_FOUND = "TargetNotFound"
    TARGET_UNKNOWN = "TargetUnknown"
    TARGET_SHARED = "TargetShared"
    SCALE_REFUSED = "ScaleRefused"


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
    # PodAutoscalers and their ConfigMap
    SCALED_UP = "ScaledUp"
    SCALED_DOWN = "ScaledDown"
    SCALE_REFUSED = "ScaleRefused"
    CONFIG_REFUSED = "ConfigRefused"
    CONFIG_UNREAD = "ConfigUnread"
    # Everything
    CANNOT_BE_DECODED = "CannotBeDecoded"
