"""Resource types (Kubernetes, Karpenter, ours), quantities and validation. Pure: no client, clock, environment, logger.

The structs hold only the fields that Wainwright uses; msgspec decodes them from an API server's JSON and skips the
rest, which is what makes lists of ten thousand pods affordable. Field names are the API's, in snake case.
"""
