#!/usr/bin/env python3
"""Keeps the security advisories about the crates of the lock files, and lays them out for cargo-deny.

    scripts/advisories/advisories.py renew CLONE     from a clone of RustSec's advisory-db
    scripts/advisories/advisories.py lay FOLDER      as the git repository that cargo-deny reads

A build needs no access to the host of RustSec's database: `advisories.txt` has of each advisory what
cargo-deny compares and prints. Renew it with each change of the lock files, and before a release:

    git clone https://github.com/RustSec/advisory-db
    scripts/advisories/advisories.py renew advisory-db
"""

import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
KEPT = HERE / "advisories.txt"
LOCKS = ["Cargo.lock", "fuzz/Cargo.lock", "scripts/*/Cargo.lock", "tests/conformance/*/Cargo.lock"]
# Begins an advisory; the rest of the line is its path in the database.
START = "==> "


def git(folder, *words):
    command = ["git", "-C", str(folder), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def crates():
    """Returns the names of all crates in the lock files."""
    texts = [path.read_text() for lock in LOCKS for path in ROOT.glob(lock)]
    return {name for text in texts for name in re.findall(r'^name = "(.+)"$', text, re.MULTILINE)}


def renew(clone):
    """Writes the advisories about our crates: their table and their title, without the prose."""
    names = crates()
    commit, day = git(clone, "log", "-1", "--format=%H %cs").split()
    kept = [
        f"From RustSec's advisory-db, commit {commit} of {day}: the advisories about crates of our lock",
        "files, each with its table and its title. Its texts are in the public domain (CC0-1.0); those",
        'with `license = "CC-BY-4.0"` are of the GitHub Advisory Database, by the address in `url`.',
    ]
    paths = git(clone, "ls-tree", "-r", "--name-only", "HEAD", "crates").split()
    for path in paths:
        if path.split("/")[1] not in names or not path.endswith(".md"):
            continue
        text = git(clone, "show", f"HEAD:{path}")
        table = re.search(r"^```toml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)[1]
        title = re.search(r"^# .+$", text, re.MULTILINE)[0]
        if "withdrawn" not in table:
            kept.append(f"{START}{path}\n{title}\n{table.strip()}")
    KEPT.write_text("\n".join(kept) + "\n")


def lay(folder):
    """Makes a git repository of the advisories, as cargo-deny expects the database to be."""
    folder = pathlib.Path(folder)
    git(".", "init", "--quiet", str(folder))
    for old in folder.glob("crates/*/*.md"):
        old.unlink()
    for advisory in KEPT.read_text().split(f"\n{START}")[1:]:
        path, title, table = advisory.split("\n", 2)
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"```toml\n{table.strip()}\n```\n\n{title}\n")
    git(folder, "add", "--all")
    author = ["-c", "user.name=sherwood", "-c", "user.email=sherwood@localhost"]
    git(folder, *author, "commit", "--quiet", "--allow-empty", "--message", "advisories")


def main():
    match sys.argv[1:]:
        case ["renew", clone]:
            renew(clone)
        case ["lay", folder]:
            lay(folder)
        case _:
            sys.exit(__doc__)


main()
