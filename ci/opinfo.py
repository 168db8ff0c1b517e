"""Checks every operator of PyTorch's operator database against the committed counts of ci/opinfo_baseline.json.

Usage: opinfo.py [--update] [--jobs N]. Needs PyTorch, and the conformance script that stands beside the repository;
without the script it says so and ends well. Fails when an operator fails for more samples than the baseline says, or
when one that fails has no reason in ci/opinfo_misses.json. ``--update`` writes the baseline anew.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT.parent / "shared" / "conformance" / "opinfo.py"
BASELINE = ROOT / "ci" / "opinfo_baseline.json"
MISSES = ROOT / "ci" / "opinfo_misses.json"


def run_shards(jobs: int, extra: list[str]) -> dict[str, Any]:
    """The reports of all operators, from ``jobs`` processes that each take every ``jobs``-th one."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)}
    with tempfile.TemporaryDirectory() as folder:
        started = []
        for k in range(1, jobs + 1):
            out = Path(folder) / f"{k}.json"
            command = [sys.executable, str(SCRIPT), "--shard", f"{k}/{jobs}", "--json", str(out), "--quiet", *extra]
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
            started.append((subprocess.Popen(command, env=environment, text=True, **pipes), out))
        merged: dict[str, Any] = {}
        for process, out in started:
            text, _ = process.communicate()
            if not out.is_file():
                raise SystemExit(f"the conformance script ended with {process.returncode}:\n{text[-4000:]}")
            merged.update(json.loads(out.read_text())["ops"])
    return {name: merged[name] for name in sorted(merged) if merged[name]["total"]}


def write_baseline(report: dict[str, Any]) -> None:
    """One operator a line, so that a change shows as lines."""
    lines = [f"{json.dumps(name)}: [{r['passed']}, {r['total']}]" for name, r in report.items()]
    BASELINE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def faults_in(report: dict[str, Any], baseline: dict[str, list[int]], reasons: dict[str, str]) -> list[str]:
    """What is worse than the baseline, and what fails without a reason.

    Failures are compared, not passes: samples that PyTorch computes differently twice are left out, and vary.
    """
    faults = []
    for name, (passed, total) in baseline.items():
        now = report.get(name)
        if now is None or (passed and not now["passed"]):
            faults.append(f"{name}: {passed} of {total} samples passed before, none does now")
        elif now["total"] - now["passed"] > total - passed:
            first = now["first"]
            faults.append(f"{name}: {now['passed']} of {now['total']} samples pass, {passed} of {total} did: {first}")
    for name, r in report.items():
        if r["passed"] < r["total"] and name not in reasons:
            failed = r["total"] - r["passed"]
            faults.append(f"{name}: {failed} samples fail without a reason in {MISSES.name}: {r['first']}")
    return faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--update", action="store_true", help="write the baseline anew")
    parser.add_argument("--jobs", type=int, default=2)
    args, extra = parser.parse_known_args()
    if not SCRIPT.is_file():
        print("opinfo: skipped, the conformance script is not there")
        return 0
    report = run_shards(args.jobs, extra)
    reasons = json.loads(MISSES.read_text())
    passed, total = (sum(r[key] for r in report.values()) for key in ("passed", "total"))
    failing = {name: r for name, r in report.items() if r["passed"] < r["total"]}
    for name, r in list(failing.items())[:60]:
        print(f"{name}: {r['passed']} of {r['total']}: {r['first']}")
    for name in reasons:
        if name in report and name not in failing:
            print(f"{name}: passes now; take its reason out of {MISSES.name}")
    whole = len(report) - len(failing)
    print(f"opinfo: {whole} of {len(report)} operators pass all samples, {passed} of {total} samples pass")
    if args.update:
        write_baseline(report)
        return 0
    if extra:
        print("the baseline is for a whole run; not compared")
        return 0
    faults = faults_in(report, json.loads(BASELINE.read_text()), reasons)
    print("\n".join(faults[:100]) or "nothing is worse than the baseline")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
