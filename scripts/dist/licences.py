#!/usr/bin/env python3
"""Prints the licences of everything that the sherwood binary contains.

    scripts/dist/licences.py > licences

The crates are those that cargo links for this machine; each text is printed once, with the crates
that have it. The texts lie in the crates' sources, which cargo keeps after a build.
"""

import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
NAME = re.compile(r"(un)?licen[cs]e|copying|notice", re.IGNORECASE)
# Data and code of others in this repository that the binary embeds.
EMBEDDED = {
    "uPlot": "crates/node/assets/uPlot.LICENSE",
    "traces of cache2k": "crates/workload/data/cache2k/LICENSE.txt",
    "RobinHood's trace": "crates/workload/data/robinhood/LICENSE",
}


def linked_packages():
    """Returns cargo's descriptions of the packages from registries that the binary links, by name."""
    version = subprocess.run(["rustc", "-vV"], check=True, capture_output=True, text=True, cwd=ROOT).stdout
    host = re.search(r"^host: (.+)$", version, re.MULTILINE)[1]
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", host]
    metadata = json.loads(subprocess.run(command, check=True, capture_output=True, cwd=ROOT).stdout)
    packages = {package["id"]: package for package in metadata["packages"]}
    dependencies = {
        node["id"]: [
            dependency["pkg"]
            for dependency in node["deps"]
            # Dependencies of tests and of build scripts have a kind.
            if any(kind["kind"] is None for kind in dependency["dep_kinds"])
        ]
        for node in metadata["resolve"]["nodes"]
    }
    open_ids = [id for id, package in packages.items() if package["name"] == "sherwood"]
    seen = set(open_ids)
    while open_ids:
        new = set(dependencies[open_ids.pop()]) - seen
        seen |= new
        open_ids += new
    linked = (packages[id] for id in seen if packages[id]["source"])
    return sorted(linked, key=lambda package: (package["name"], package["version"]))


def licence_texts(directory):
    """Returns the texts of the licence files below a package's directory."""
    files = (path for path in sorted(directory.rglob("*")) if NAME.match(path.name) and path.is_file())
    return [path.read_text(errors="replace").strip() for path in files if path.suffix not in {".rs", ".py"}]


def main():
    """Prints the list of packages, then the texts."""
    owners = {}
    print("The sherwood binary contains the following libraries.\n")
    for package in linked_packages():
        title = f"{package['name']} {package['version']}"
        print(f"{title}: {package['license'] or 'see its text'}, {package['repository'] or 'no repository named'}")
        for text in licence_texts(pathlib.Path(package["manifest_path"]).parent):
            owners.setdefault(text, []).append(title)
    print("Rust's standard library: MIT OR Apache-2.0, https://github.com/rust-lang/rust")
    for title, path in EMBEDDED.items():
        print(f"{title}: see its text")
        owners.setdefault((ROOT / path).read_text().strip(), []).append(title)
    for text, titles in owners.items():
        print(f"\n{'=' * 80}\n{', '.join(dict.fromkeys(titles))}\n\n{text}")


if __name__ == "__main__":
    sys.exit(main())
