#!/usr/bin/env python3
"""Checks the Helm chart with the helm of this Python's environment.

    target/venv/bin/python scripts/dist/helm_check.py target/debug/sherwood

Each file of values in the chart's ci/ is linted and rendered, Kubernetes' own schemas accept the
result, and the node its configuration and its memory. Each file with one wrong value is refused.
The schema of config is the node's own; with REWRITE in the environment it is copied.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import kubernetes_validate
import yaml

# Tables and keys of the configuration that the chart writes itself.
OWN_TABLES = {"listener", "admin", "cluster"}
OWN_KEYS = {"snapshot"}

CHART = pathlib.Path(__file__).resolve().parents[2] / "deploy/helm/sherwood"
HELM = pathlib.Path(sys.executable).parent / "helm"
# Kinds of the Prometheus operator, which Kubernetes itself does not know.
FOREIGN = {"ServiceMonitor", "PodMonitor"}
MIB = {"M": 1, "G": 1024, "T": 1048576}

# Additions to values, by the file that they are added to, and a part of the refusal.
REFUSED = [
    ("tier", 'mode="daemon"', "mode"),
    ("tier", "replica=3", "Additional property replica is not allowed"),
    ("tier", 'clients.passwordsSecret=""', "clients"),
    ("tier", "clients.trustedNetwork=false", "clients"),
    ("tier", "clients.certificates=true", "clients.tlsSecret"),
    ("tier", "admin.expose=true", "admin.tokensSecret"),
    ("tier", "serviceMonitor.enabled=true", "admin.expose"),
    ("tier", 'listeners=[{"protocol": "redis", "port": 0}]', "port"),
    ("tier", 'listeners=[{"protocol": "redis", "port": 8080}]', "port 8080 is taken"),
    ("tier", 'listeners=[{"protocol": "http", "port": 80}]', "protocol"),
    ("tier", 'listeners=[{"protocol": "redis", "port": 1, "bind": "0.0.0.0:1"}]', "bind"),
    ("tier", 'config.memory.total="1gb"', "total"),
    ("tier", 'config.memory.total="65TiB"', "total"),
    ("tier", 'config.memory.buffers="31MiB"', "buffers"),
    ("tier", 'config.memory.eviction="fifo"', "eviction"),
    ("tier", 'config.memory.snapshot={"path": "/a"}', "snapshot"),
    ("tier", 'config.memroy={"total": "1GiB"}', "memroy"),
    ("tier", "config.server.threads=257", "threads"),
    ("tier", 'config.admin={"bind": "off"}', "admin"),
    ("tier", 'config.backend=[{"timeout": "1s"}]', "name"),
    ("tier", 'config.backend=[{"name": "a", "timeuot": "1s"}]', "timeuot"),
    ("tier", 'config.backend=[{"name": "a", "timeout": "soon"}]', "timeout"),
    ("tier", 'config.slo={"percentile": 101}', "percentile"),
    ("tier", 'config.control={"policy": true}', "policy"),
    ("tier", 'snapshot.maxTime="601s"', "maxTime"),
    ("tier", 'config.cluster={"name": "a"}', "cluster"),
    ("tier", "cluster.enabled=true", "servers"),
    ("tier-tls", 'serviceMonitor.serverName=""', "serverName"),
    ("cluster", 'mode="sidecar"', "mode"),
    ("cluster", "replicas=65", "replicas"),
    ("cluster", "cluster.statistics=4", "4 of 3 nodes"),
    ("cluster", 'cluster.name="my.shop"', "name"),
    ("cluster", "cluster.servers=[]", "servers"),
    ("cluster", 'cluster.servers=["nats:4222"]', "servers"),
    ("cluster", 'cluster.servers=["nats://a:b@nats:4222"]', "servers"),
    ("cluster", 'cluster.credentialsSecret="",cluster.tlsSecret="",cluster.certificates=false', "at least one schema"),
    ("cluster", 'cluster.tlsSecret=""', "tlsSecret"),
    ("sidecar", "application.containers=[]", "containers"),
]


def helm(*arguments):
    """Runs helm on the chart; returns its exit status and all that it says."""
    command = [HELM, *arguments[:1], "t"] if arguments[0] == "template" else [HELM, *arguments[:1]]
    done = subprocess.run(
        [*command, CHART, *arguments[1:]], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    return done.returncode, done.stdout


def mib(size):
    """Returns a size such as 1GiB or 3.5Mi in MiB."""
    return float(re.match(r"[0-9.]+", size)[0]) * MIB[re.search("[MGT]", size)[0]]


def node_schema(sherwood, values_schema):
    """Returns the schema of values with the node's own schema of its configuration in it."""
    printed = subprocess.run([sherwood, "config-schema"], check=True, capture_output=True, text=True).stdout
    node = json.loads(printed)
    definitions = node["$defs"]
    memory = definitions.pop("Memory")
    for key in OWN_KEYS:
        del memory["properties"][key]
    # The pod's memory is computed from these two.
    for key in ("total", "buffers"):
        memory["properties"][key] = {"allOf": [memory["properties"][key], {"$ref": f"#/definitions/{key}"}]}
    memory["required"] = ["total", "buffers"]
    tables = {name: table for name, table in node["properties"].items() if name not in OWN_TABLES}
    schema = {**values_schema, "$defs": definitions}
    schema["properties"] = dict(schema["properties"])
    schema["properties"]["config"] = {
        "type": "object",
        "additionalProperties": False,
        "properties": {**tables, "memory": memory},
        "required": ["memory"],
    }
    return schema


def check_schema(sherwood):
    """Checks, or brings about, that the chart knows the node's configuration."""
    path = CHART / "values.schema.json"
    kept = json.loads(path.read_text())
    wanted = node_schema(sherwood, kept)
    if "REWRITE" in os.environ:
        path.write_text(json.dumps(wanted, indent=1, ensure_ascii=False) + "\n")
    else:
        assert kept == wanted, f"{path} has another configuration than the node: run this test with REWRITE=1"
    print("ok schema of the configuration")


def check_rendered(name, sherwood):
    """Checks what the chart makes of one file of values."""
    values = CHART / "ci" / f"{name}.yaml"
    status, said = helm("lint", "--strict", "-f", values)
    assert status == 0, said
    status, said = helm("template", "-f", values)
    assert status == 0, said
    objects = {item["kind"]: item for item in yaml.safe_load_all(said)}
    for kind, item in objects.items():
        if kind not in FOREIGN:
            kubernetes_validate.validate(item, "1.37", strict=True)

    config = objects["ConfigMap"]["data"]["sherwood.toml"]
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(config)
        file.flush()
        checked = subprocess.run([sherwood, "check-config", file.name], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, f"{config}\n{checked.stderr}"

    workload = objects.get("StatefulSet") or objects["Deployment"]
    pod = workload["spec"]["template"]["spec"]
    (node,) = [box for box in pod.get("initContainers", []) + pod["containers"] if box["name"] == "sherwood"]
    total, buffers = (mib(re.search(rf'{key} = "(.*)"', config)[1]) for key in ("total", "buffers"))
    rule = total + max(64, 0.15 * total) + buffers
    assert mib(node["resources"]["limits"]["memory"]) >= rule, f"{node['resources']} for {rule} MiB"
    mounted = {mount["name"] for mount in node["volumeMounts"]}
    volumes = {volume["name"] for volume in pod["volumes"]}
    volumes |= {claim["metadata"]["name"] for claim in workload["spec"].get("volumeClaimTemplates", [])}
    assert mounted <= volumes, f"{mounted} of {volumes}"
    for path in re.findall(r'"(/[^"]+)"', config):
        assert any(path.startswith(mount["mountPath"]) for mount in node["volumeMounts"]), f"{path} is not mounted"
    print(f"ok {name}: {', '.join(sorted(objects))}")


def check_refused(name, setting, reason):
    """Checks that the chart refuses a file of values with one more setting, and says why."""
    status, said = helm("template", "-f", CHART / "ci" / f"{name}.yaml", "--set-json", setting)
    assert status != 0 and reason in said, f"{name} with {setting} should be refused by {reason}: {said}"
    print(f"ok {name} with {setting} is refused")


def main():
    """Checks all files of values, and all refusals."""
    sherwood = pathlib.Path(sys.argv[1]).resolve()
    check_schema(sherwood)
    names = sorted(path.stem for path in (CHART / "ci").glob("*.yaml"))
    assert len(names) >= 3, names
    for name in names:
        check_rendered(name, sherwood)
    # The defaults are a tier whose clients show nothing.
    status, said = helm("template")
    assert status != 0 and "clients" in said, said
    for refusal in REFUSED:
        check_refused(*refusal)


if __name__ == "__main__":
    main()
