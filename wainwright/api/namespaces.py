"""Namespaces: their labels are what namespace selectors of pod affinities look at."""

from __future__ import annotations

from wainwright.api.base import Resource
from wainwright.api.meta import ObjectMeta


class Namespace(Resource):
    metadata: ObjectMeta
