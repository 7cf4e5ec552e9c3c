#!/usr/bin/env python3
"""manifests.py CRDS FILE...: checks Kubernetes manifests against the schemas of JobSet and Trainer.

    manifests.py CRDS FILE...                lists what is wrong; status 1 if there is anything
    manifests.py --mutations N CRDS FILE...  changes N keys and types at random, one at a time, and
                                             prints how many the schemas refuse, and which not
    manifests.py --commands FILE...          the command lines of lockstep in them

CRDS is a folder with their custom resource definitions. JobSet's has Kubernetes' schemas of a Job
and of a pod in full; what a Deployment and a Service have around their pods is written here.
"""
import copy
import random
import shlex
import sys
from pathlib import Path

import jsonschema
import yaml

TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
LEFT_OUT = ("description", "format", "default")
METADATA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["name"],
    "properties": {"name": {"type": "string"}, "labels": TEXTS, "annotations": TEXTS},
}


def strict(schema):
    """The structural schema as JSON Schema, with no key beyond those that it names."""
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {}
    for key, value in schema.items():
        if key == "properties":
            kept[key] = {name: strict(one) for name, one in value.items()}
        elif not key.startswith("x-kubernetes-") and key not in LEFT_OUT:
            kept[key] = strict(value)
    if schema.get("x-kubernetes-int-or-string"):
        kept.pop("type", None)
        kept.setdefault("anyOf", [{"type": "integer"}, {"type": "string"}])
    open_end = schema.get("x-kubernetes-preserve-unknown-fields")
    if "properties" in kept and not open_end:
        kept.setdefault("additionalProperties", False)
    return kept


def whole(group, kind, spec):
    return {
        "type": "object",
        "additionalProperties": False,
        "required": ["apiVersion", "kind", "metadata", "spec"],
        "properties": {
            "apiVersion": {"enum": [group]},
            "kind": {"enum": [kind]},
            "metadata": METADATA,
            "spec": spec,
        },
    }


def schemas(folder):
    found = {}
    for path in sorted(Path(folder).glob("*.yaml")):
        for crd in filter(None, yaml.safe_load_all(path.read_text())):
            if crd.get("kind") != "CustomResourceDefinition":
                continue
            for version in crd["spec"]["versions"]:
                group = f"{crd['spec']['group']}/{version['name']}"
                kind = crd["spec"]["names"]["kind"]
                spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
                found[group, kind] = whole(group, kind, strict(spec))
    job_set = found["jobset.x-k8s.io/v1alpha2", "JobSet"]["properties"]["spec"]
    job = job_set["properties"]["replicatedJobs"]["items"]["properties"]["template"]
    job_spec = job["properties"]["spec"]
    found["batch/v1", "Job"] = whole("batch/v1", "Job", job_spec)
    pod = copy.deepcopy(job_spec["properties"]["template"])
    pod["properties"]["metadata"] = {**METADATA, "required": ["labels"]}
    count = {"type": "integer", "minimum": 0}
    found["apps/v1", "Deployment"] = whole("apps/v1", "Deployment", {
        "type": "object",
        "additionalProperties": False,
        "required": ["selector", "template"],
        "properties": {
            "replicas": count,
            "selector": {"type": "object", "additionalProperties": False,
                         "required": ["matchLabels"], "properties": {"matchLabels": TEXTS}},
            "template": pod,
        },
    })
    port = {"type": "integer", "minimum": 1, "maximum": 65535}
    found["v1", "Service"] = whole("v1", "Service", {
        "type": "object",
        "additionalProperties": False,
        "required": ["ports", "selector"],
        "properties": {
            "selector": TEXTS,
            "ports": {"type": "array", "minItems": 1, "items": {
                "type": "object", "additionalProperties": False, "required": ["port"],
                "properties": {"port": port, "targetPort": port, "name": {"type": "string"}}}},
        },
    })
    return found


def faults(found, document):
    kind = str(document.get("apiVersion")), str(document.get("kind"))
    if kind not in found:
        return [f"no schema for {kind}"]
    errors = jsonschema.Draft202012Validator(found[kind]).iter_errors(document)
    return [f"{'.'.join(map(str, one.path))}: {one.message[:200]}" for one in errors]


def places(node, path=()):
    """Every key and item, with its path. Keys that users choose freely are not among them."""
    free = path and path[-1] in ("limits", "labels", "matchLabels", "selector", "annotations")
    entries = node.items() if isinstance(node, dict) else enumerate(node)
    for key, value in entries:
        if not free or path[-1] == "selector" and isinstance(value, dict):
            yield path + (key,)
        if isinstance(value, (dict, list)):
            yield from places(value, path + (key,))


def mutated(document, path, draw):
    changed = copy.deepcopy(document)
    parent = changed
    for key in path[:-1]:
        parent = parent[key]
    key = path[-1]
    if isinstance(parent, dict) and draw.random() < 0.5:
        parent[key + draw.choice("sxE")] = parent.pop(key)
        return changed, "renamed"
    value = parent[key]
    parent[key] = "text" if isinstance(value, (dict, list, bool, int)) else {"a": 1}
    return changed, "of another type"


def documents(paths):
    for path in paths:
        for document in filter(None, yaml.safe_load_all(Path(path).read_text())):
            yield path, document


def containers(node):
    if isinstance(node, dict):
        if node.get("command") == ["lockstep"]:
            yield node
        for value in node.values():
            yield from containers(value)
    elif isinstance(node, list):
        for value in node:
            yield from containers(value)


def main(arguments):
    if arguments[0] == "--commands":
        for _, document in documents(arguments[1:]):
            for one in containers(document):
                print(shlex.join(one["command"] + [str(word) for word in one["args"]]))
        return 0
    mutations = 0
    if arguments[0] == "--mutations":
        mutations, arguments = int(arguments[1]), arguments[2:]
    found = schemas(arguments[0])
    every = list(documents(arguments[1:]))
    wrong = [f"{path}: {fault}" for path, one in every for fault in faults(found, one)]
    print("\n".join(wrong) if wrong else f"{len(every)} objects are as their schemas say")
    draw = random.Random(7)
    refused = 0
    for _ in range(mutations):
        path, document = draw.choice(every)
        place = draw.choice(list(places(document)))
        changed, how = mutated(document, place, draw)
        if faults(found, changed):
            refused += 1
        else:
            print(f"not seen: {path}: {'.'.join(map(str, place))} {how}")
    if mutations:
        print(f"refused {refused} of {mutations}")
    return 1 if wrong else 0


sys.exit(main(sys.argv[1:]))
