"""usage: parse.py FILE: reads OpenMetrics text strictly, and checks what conventions ask of names and units."""

import sys

from prometheus_client.openmetrics.parser import text_string_to_metric_families

UNITS = ("bytes", "seconds", "ratio")

with open(sys.argv[1], encoding="utf-8") as file:
    families = list(text_string_to_metric_families(file.read()))

wrong = []
for family in families:
    if not family.documentation:
        wrong.append(f"{family.name} has no help")
    if not family.name.startswith(("orlop_", "process_")):
        wrong.append(f"{family.name} has no prefix")
    for unit in UNITS:
        if family.name.endswith("_" + unit) and family.unit != unit:
            wrong.append(f"{family.name} has the unit {family.unit!r}")
    seen = {(sample.name, tuple(sorted(sample.labels.items()))) for sample in family.samples}
    if len(seen) != len(family.samples):
        wrong.append(f"{family.name} has a sample twice")

names = {family.name for family in families}
for name in ("orlop_build_info", "orlop_pool_size_bytes", "orlop_call_duration_seconds", "process_cpu_seconds"):
    if name not in names:
        wrong.append(f"{name} is missing")
probes = [
    sample.value
    for family in families
    for sample in family.samples
    if sample.name == "orlop_call_duration_seconds_count"
    and sample.labels == {"method": "csi.v1.Identity/Probe", "code": "OK"}
]
if not probes or probes[0] < 1:
    wrong.append("the calls that readiness was asked with are not counted")

sys.exit("\n".join(wrong) if wrong else 0)
