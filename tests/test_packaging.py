"""What is configured in several places agrees: extras, pins, hooks, versions, wheels."""

from __future__ import annotations

import re
import struct
import sys
from pathlib import Path

import pytest
from test_codebase import ROOT, array_of, pins

PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
HOOKS = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
DEVELOPMENT = pins((ROOT / "requirements-dev.txt").read_text(encoding="utf-8").splitlines())


def extras() -> dict[str, set[str]]:
    """Requirements of each extra; the standard library of 3.9 and 3.10 has no TOML reader."""
    section = re.search(r"^\[project\.optional-dependencies\]\n(.*?)^\[", PROJECT, re.M | re.S)
    assert section
    lists = re.findall(r"^(\w+) = \[(.*?)\]$", section.group(1), re.M | re.S)
    return {name: pins(re.findall(r'"([^"]*)"', text)) for name, text in lists}


def test_extras() -> None:
    found = extras()
    assert {"cuda12", "cuda13", "compare", "viz", "safetensors", "docs", "all"} <= set(found)
    apart = {"all", "cuda12", "cuda13", "docs", "mpi", "ray", "test"}  # by machine, or for developers
    assert found["all"] == set().union(*(found[name] for name in set(found) - apart))
    assert found["docs"] <= DEVELOPMENT


def test_what_extras_ask_for_is_installed_for_the_tests() -> None:
    """So that no test of an extra is skipped where requirements-dev.txt is installed."""
    every = set().union(*(extras()[name] for name in ("all", "docs", "mpi", "ray")))
    wanted = {re.split(r"[<>=]", line)[0].lower() for line in every}
    there = {line.split("==")[0].lower() for line in DEVELOPMENT}
    assert wanted <= there, f"requirements-dev.txt lacks {wanted - there}"


def test_every_requirement_is_pinned() -> None:
    assert [line for line in DEVELOPMENT if not re.match(r"[\w.-]+==\d", line)] == []


def recipe(target: str) -> list[str]:
    found = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", MAKEFILE, re.M)
    assert found, f"the Makefile has no target {target}"
    lines = found.group(1).replace("$(PY)", ".venv/bin/python").replace("$(VENV)", ".venv")
    return [line.strip() for line in lines.splitlines()]


def hooks() -> dict[str, dict[str, str]]:
    """The entries of each hook, by its id."""
    blocks = re.split(r"^ +- id: ", HOOKS, flags=re.M)[1:]
    return {
        block.split("\n", 1)[0].strip(): dict(re.findall(r"^ +(\w+): (.*)$", block, re.M)) for block in blocks
    }


def test_hooks_are_the_tools_of_make_lint() -> None:
    """Each command of `make lint` is a hook; hooks run the programs of .venv, which are pinned."""
    entries = [hook["entry"] for hook in hooks().values()]
    for command in recipe("lint"):
        tool = re.sub(r" (?:\.|\$\(CXX_SOURCES\))$", "", command)  # hooks are given the files
        assert any(entry == tool or entry.startswith(tool + " ") for entry in entries), f"no hook: {command}"
    assert all(entry.startswith(".venv/bin/") for entry in entries), entries
    assert all(hook["language"] == "system" for hook in hooks().values())
    for tool in ("ruff", "mypy", "clang-format"):
        assert any(line.startswith(f"{tool}==") for line in DEVELOPMENT)


def test_hooks_are_valid() -> None:
    yaml = pytest.importorskip("yaml")
    repos = yaml.safe_load(HOOKS)["repos"]
    assert [repo["repo"] for repo in repos] == ["local"]
    for hook in repos[0]["hooks"]:
        assert {"id", "name", "entry", "language"} <= set(hook)
        for key in ("files", "exclude"):
            re.compile(hook.get(key, ""))


def test_versions_agree() -> None:
    version = re.search(r'^version = "(.*)"$', PROJECT, re.M)
    assert version
    package = (ROOT / "python" / "dynet_compat" / "__init__.py").read_text(encoding="utf-8")
    assert f'__compat_version__ = "{version.group(1)}"' in package
    assert f"## {version.group(1)}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_wheels_are_built_for_every_python_we_claim() -> None:
    claimed = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', PROJECT)
    built = re.search(r'^build = "(.*)"$', PROJECT, re.M)
    assert built and built.group(1).split() == [f"cp{v.replace('.', '')}-*" for v in claimed]
    assert f'requires-python = ">={claimed[0]}"' in PROJECT


def test_sdist_is_built_from_pins() -> None:
    assert all("==" in line for line in pins(array_of(PROJECT, "requires")))


def test_continuous_integration_runs_the_readme() -> None:
    script = (Path(ROOT) / ".ci" / "run").read_text(encoding="utf-8")
    assert "make test" in script and "make test" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_no_message_names_an_extra_of_a_package_that_is_on_no_index() -> None:
    """`pip install dynet-compat[...]` answers "No matching distribution" until it is published."""
    pages = [ROOT / "README.md", *(ROOT / "migration_guide").glob("*.md"), *(ROOT / "python").rglob("*.py")]
    found = [str(p) for p in pages if re.search(r"dynet[-_]compat\[", p.read_text(encoding="utf-8"))]
    assert found == [], "name the package that the extra stands for"


def test_the_readme_has_no_links_that_a_package_index_cannot_follow() -> None:
    """It is shown there without the files beside it."""
    links = re.findall(r"\]\(([^)]*)\)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert [link for link in links if not link.startswith("https://")] == []


def test_citation_and_security() -> None:
    yaml = pytest.importorskip("yaml")
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert f'version = "{cited["version"]}"' in PROJECT and cited["license"] == "Apache-2.0"
    assert "Reporting" in (ROOT / "SECURITY.md").read_text(encoding="utf-8")


def test_wheels_for_macos_and_newer_pythons() -> None:
    assert 'macos.archs = "arm64"' in PROJECT and 'linux.archs = "x86_64 aarch64"' in PROJECT
    assert "< (3, 15)" not in MAKEFILE


@pytest.mark.skipif(sys.platform != "linux", reason="ELF")
def test_thread_local_variables_fit_into_the_reserve_of_the_c_library() -> None:
    """glibc keeps 1,664 bytes for modules that are loaded late; one that needs more cannot be imported."""
    from dynet_compat import _core

    data = Path(_core.__file__).read_bytes()
    start, size, n = struct.unpack_from("<Q", data, 32)[0], *struct.unpack_from("<HH", data, 54)
    headers = [struct.unpack_from("<IIQQQQQQ", data, start + i * size) for i in range(n)]
    needed = sum(h[6] for h in headers if h[0] == 7)  # p_memsz of PT_TLS
    assert 0 < needed <= 1408, f"{needed} bytes: find the new thread_local variables"
