"""DaemonSets: what each new node must carry besides the pods it is made for."""

from __future__ import annotations

from wainwright.api.base import Resource
from wainwright.api.meta import LabelSelector, ObjectMeta
from wainwright.api.pods import PodSpec


class PodTemplate(Resource):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()


class DaemonSetSpec(Resource):
    template: PodTemplate = PodTemplate()
    selector: LabelSelector | None = None


class DaemonSet(Resource):
    metadata: ObjectMeta
    spec: DaemonSetSpec = DaemonSetSpec()
