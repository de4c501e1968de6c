"""C++ ROOT reads trees from `gridlane serve` over root://: with its cache, as fast as it can, and without."""

import json
import os
import platform
import subprocess

import pytest
import uproot
from conftest import data_directory

# Not a tool that may be missing: there is none for others.
pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="ROOT has wheels for x86_64 only")

SCRIPT = """
import json, sys, warnings
warnings.simplefilter("ignore")
import ROOT

url, name, cache_bytes, *branches = sys.argv[1:]
file = ROOT.TFile.Open(url)
assert file and not file.IsZombie(), url
tree = file.Get(name)
tree.SetBranchStatus("*", 0)
for branch in branches:
    tree.SetBranchStatus(branch, 1)
tree.SetCacheSize(int(cache_bytes))
if int(cache_bytes):
    for branch in branches:
        tree.AddBranchToCache(branch, True)
    tree.StopCacheLearningPhase()
opened = file.GetReadCalls()
leaves = [tree.GetLeaf(branch) for branch in branches]
sums = [0.0] * len(leaves)
for entry in range(tree.GetEntries()):
    tree.GetEntry(entry)
    for index, leaf in enumerate(leaves):
        sums[index] += leaf.GetValue()
cache = file.GetCacheRead(tree)
print(json.dumps({
    "by": file.IsA().GetName(), "entries": int(tree.GetEntries()), "sums": sums,
    "reads": file.GetReadCalls() - opened, "efficiency": cache.GetEfficiency() if cache else None,
}))
"""


def read_by_root(url, tree, branches, cache_bytes, home):
    python = os.environ.get("GRIDLANE_ROOT_PYTHON")
    assert python and os.path.exists(python), "C++ ROOT is missing: scripts/bootstrap.sh --test"
    # It has modules of its own.
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    command = [python, "-c", SCRIPT, url, tree, str(cache_bytes), *branches]
    done = subprocess.run(command, env=env, cwd=home, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_a_tree_through_its_cache(data, home):
    name, tree, branches = "uproot-Zmumu.root", "events", ["px1", "py1", "pz1", "E1"]
    with uproot.open(data_directory() / "root" / name) as file:
        wanted = file[tree].arrays(branches, library="np")
    url = data.url("root", f"root/{name}")
    cached = read_by_root(url, tree, branches, 1 << 20, home)
    single = read_by_root(url, tree, branches, 0, home)
    for found in (cached, single):
        assert (found["by"], found["entries"]) == ("TNetXNGFile", len(wanted["px1"]))
        assert found["sums"] == pytest.approx([float(wanted[branch].sum()) for branch in branches])
    # All baskets of a cluster in one vector read, and none beside it.
    assert cached["efficiency"] == 1.0 and single["efficiency"] is None
    assert 0 < cached["reads"] < single["reads"]
