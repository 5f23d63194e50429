"""The bundled editor is the one that its source gives, with the licences of what it contains."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import millpond.studio

STUDIO = Path(millpond.studio.__file__).parent
# In the order in which build.js reads them.
INPUTS = ("build.js", "editor.js", "package-lock.json")


def test_the_bundle_is_up_to_date() -> None:
    """To build it: npm ci && npm run build, in the folder editor."""
    digest = hashlib.sha256(b"".join((STUDIO / "editor" / name).read_bytes() for name in INPUTS))
    with (STUDIO / "static" / "editor.js").open(encoding="utf-8") as bundle:
        assert digest.hexdigest() in bundle.readline()


def test_the_bundle_is_small_and_loads_nothing() -> None:
    bundle = (STUDIO / "static" / "editor.js").read_text(encoding="utf-8")
    assert len(bundle.encode()) < 500_000
    addresses = set(re.findall(r"https?://[\w.]+", bundle))
    assert addresses == {"http://www.w3.org"}  # the name of a namespace
    assert not re.search(r"\bfetch\(|XMLHttpRequest|sendBeacon|\beval\(|new Function\(|import\(", bundle)


def test_the_lock_file_names_no_server() -> None:
    lock = json.loads((STUDIO / "editor" / "package-lock.json").read_text(encoding="utf-8"))
    assert not any("resolved" in package for package in lock["packages"].values())


def test_the_licence_of_each_bundled_package_is_there() -> None:
    lock = json.loads((STUDIO / "editor" / "package-lock.json").read_text(encoding="utf-8"))
    licences = (STUDIO / "static" / "LICENSES.txt").read_text(encoding="utf-8")
    bundled = {
        path.removeprefix("node_modules/"): package for path, package in lock["packages"].items() if path
    }
    for name, package in bundled.items():
        if "esbuild" not in name:  # the bundler itself is not in the bundle
            assert f"\n{name} {package['version']} (MIT)\n" in licences, name
