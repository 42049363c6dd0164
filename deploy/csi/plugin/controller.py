"""Volumes for which claims ask by a StorageClass. Their contents follow from the class and from the claim. This file has no gRPC and no state.

A volume is a view of objects. So no objects are made with it, and none are removed with it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from node import ATTRIBUTES, Refused, check_uri

# A name in the uri of a class -> the parameter in which Kubernetes' external-provisioner says it (--extra-create-metadata).
PLACES = {
    "pvc.name": "csi.storage.k8s.io/pvc/name",
    "pvc.namespace": "csi.storage.k8s.io/pvc/namespace",
    "pv.name": "csi.storage.k8s.io/pv/name",
}
# Names of claims and namespaces have no slash and are not "..": a claim cannot point outside the place that the class gives it.
NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


def attributes_of(volume: str, parameters: Mapping[str, str], folders: bool) -> dict[str, str]:
    """Returns the volumeAttributes of a volume. Unknown parameters of the class are INVALID_ARGUMENT. `folders` is that of Settings."""
    given = {name: value for name, value in parameters.items() if not name.startswith("csi.storage.k8s.io/")}
    for name in given:
        if name not in ATTRIBUTES:
            known = ", ".join(sorted(ATTRIBUTES))
            raise Refused(
                "INVALID_ARGUMENT", f"volume {volume}: its StorageClass has the parameter '{name}'; known are {known}"
            )
    given["uri"] = _filled(volume, given.get("uri", ""), parameters)
    check_uri(volume, given["uri"], folders)
    return given


def _filled(volume: str, uri: str, parameters: Mapping[str, str]) -> str:
    def value(place: re.Match[str]) -> str:
        if place[1] not in PLACES:
            known = ", ".join(f"${{{name}}}" for name in PLACES)
            raise Refused(
                "INVALID_ARGUMENT", f"volume {volume}: uri of its StorageClass has '{place[0]}'; known are {known}"
            )
        found = parameters.get(PLACES[place[1]], "")
        if not NAME.fullmatch(found) or ".." in found:
            raise Refused(
                "INVALID_ARGUMENT",
                f"volume {volume}: {place[0]} of its StorageClass is '{found}'; "
                "the external-provisioner needs --extra-create-metadata",
            )
        return found

    return re.sub(r"\$\{([^}]*)\}", value, uri)
