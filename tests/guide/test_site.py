"""The documentation site builds without warnings and has every public name."""

from __future__ import annotations

import html
import importlib.util
import os
import re
import subprocess
import sys
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Optional
from urllib.parse import unquote, urlsplit

import pytest
from support.subject import IS_REFERENCE

if IS_REFERENCE:
    pytest.skip("our own documentation", allow_module_level=True)

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import make_docs  # noqa: E402
from dynet_compat import _core  # noqa: E402


class Page(HTMLParser):
    """Ids, links and resources of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.resources: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, Optional[str]]]) -> None:
        given = dict(attrs)
        self.ids |= {given["id"]} if given.get("id") else set()  # type: ignore[arg-type]
        if tag == "a" and given.get("href"):
            self.links.append(str(given["href"]))
        source = given.get("src") or (given.get("href") if tag == "link" else None)
        if source and given.get("rel") != "canonical":
            self.resources.append(source)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if importlib.util.find_spec("mkdocs") is None:
        pytest.skip("mkdocs is not installed (requirements-dev.txt)")
    folder = tmp_path_factory.mktemp("site")
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(path for path in sys.path if path))
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    output = result.stdout + result.stderr
    assert result.returncode == 0 and "WARNING" not in output, output
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, Page]:
    found = sorted(site.rglob("*.html"))
    return {path.relative_to(site).as_posix(): Page(path.read_text(encoding="utf-8")) for path in found}


def test_own_pages_are_there(pages: dict[str, Page]) -> None:
    own = {name.replace("README.md", "index.html").replace(".md", ".html") for name in make_docs.own_pages()}
    assert own <= set(pages)
    guide = {f"migration_guide/{path.name}" for path in (ROOT / "migration_guide").glob("*.md")}
    assert guide <= set(make_docs.own_pages()), "the guide's README lists all of its pages"


def test_every_public_name_is_there_once(dy: Any, pages: dict[str, Page]) -> None:
    """Functions and classes have a place of their own, members of classes, too; other names are listed."""
    where = Counter(name for path, page in pages.items() if path.startswith("api/") for name in page.ids)
    listed = {name for name, _ in make_docs.other_names()}
    names = [name for name in dir(dy) if not name.startswith("_") and name in {*dy.__all__, *dy._NOT_DYNETS}]
    assert len(names) > 220
    assert [name for name in names if where[name] != 1 and name not in listed] == []
    assert len(listed) < 20 and not [name for name in listed if callable(getattr(dy, name))]
    for member in ("Trainer.update", "ParameterCollection.add_parameters", "GRUBuilder.initial_state",
                   "Expression.npvalue", "Tensor.topk"):  # fmt: skip
        assert where[member] == 1, member


def test_every_op_is_there(site: Path, pages: dict[str, Page]) -> None:
    table = html.unescape((site / "api" / "op_table.html").read_text(encoding="utf-8"))
    ids = set().union(*(page.ids for page in pages.values()))
    for row in _core.op_table():
        assert f"<code>{row['name']}</code>" in table, row["name"]
        if row["public"] and hasattr(make_docs.package, row["name"]):
            assert row["name"] in ids, f"no documentation of {row['name']}"


def test_links(site: Path, pages: dict[str, Page]) -> None:
    """Each leads to a page or a file of the site, and to a place on the page that exists."""
    wrong = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or path == "404.html":
                continue
            target = os.path.normpath(os.path.join(os.path.dirname(path), parts.path)) if parts.path else path
            if target.endswith((".ipynb", ".txt")) and (site / target).exists():
                continue
            if target not in pages or (parts.fragment and unquote(parts.fragment) not in pages[target].ids):
                wrong.append(f"{path}: {link}")
    assert wrong == []


def test_nothing_is_loaded_from_elsewhere(pages: dict[str, Page]) -> None:
    assert [source for page in pages.values() for source in page.resources if urlsplit(source).netloc] == []


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("x * y is `x_y`", "x \\* y is `x_y`"),
        ("{rows}xB, a_b and <b>", "\\{rows\\}xB, a\\_b and &lt;b&gt;"),
    ],
)
def test_text_says_what_it_says(text: str, wanted: str) -> None:
    assert make_docs.plain(text) == wanted


def test_docstring_as_markdown() -> None:
    doc = "First.\n\nArgs:\n    x, y: one\n        more.\n    z: two.\nReturns:\n    a list.\n"
    text = make_docs.documentation(doc + "Example:\n    >>> 1\n    1\n")
    assert "- `x, y`: one more.\n- `z`: two." in text
    assert "Returns:\n\n- a list." in text and "```pycon\n>>> 1\n1\n```" in text


def test_markdown_of_the_repository() -> None:
    text = "One:\n- a\n- b\n\n```sh dry-run\nls:\n- x\n```\n"
    assert make_docs.for_site(text) == "One:\n\n- a\n- b\n\n```sh\nls:\n- x\n```\n"
    assert not re.search(r"^```\w+ ", make_docs.for_site((ROOT / "CONTRIBUTING.md").read_text()), re.M)


def test_tools_for_looking_at_a_program_have_a_page(site: Path) -> None:
    page = (site / "api" / "looking_at_a_program_plans_drawings_profiles.html").read_text(encoding="utf-8")
    for name in ("profile", "batch_plan", "to_svg"):
        assert re.search(rf'id="[^"]*{name}"', page), f"{name} is on no page of the API"


def test_tutorial_is_a_page_and_a_download(site: Path, pages: dict[str, Page]) -> None:
    tutorial = pages["migration_guide/tutorial.html"]
    assert "tutorial.ipynb" in tutorial.links and {"model", "training", "save-and-load"} <= tutorial.ids
    assert (site / make_docs.NOTEBOOK).read_bytes() == (ROOT / make_docs.NOTEBOOK).read_bytes()
    assert "tutorial.html" in pages["migration_guide/index.html"].links, "the guide leads to the page"
    menu = (site / "index.html").read_text(encoding="utf-8")
    assert re.search(r'href="migration_guide/tutorial.html"[^>]*>\s*Tutorial\s*<', menu), "not in the menu"


def test_search_stays_in_view() -> None:
    """The theme scrolls the menu to the current page, past the search at its top."""
    style = (ROOT / "docs" / "style.css").read_text(encoding="utf-8")
    assert re.search(r"\.wy-side-nav-search \{[^}]*position: sticky", style)


def test_guide_has_no_private_names() -> None:
    for page in (ROOT / "README.md", *sorted((ROOT / "migration_guide").glob("*.md"))):
        text = page.read_text(encoding="utf-8")
        assert not re.search(r"\bdy\._(?!_)\w+", text), f"{page.name} uses a private name"
        assert "do not edit" not in text.split("\n\n")[1], f"{page.name} does not begin with what it is about"


FILE = r"(?<![\w/.-])((?:[a-z_]+/)+(?:\w+\.(?:h|cc|cu|py|inc)|[a-z_]+/))(?=[`)<\s])"


def test_pages_name_files_that_exist() -> None:
    """Paths in docs/architecture.md, its drawing, and the tables of CONTRIBUTING.md."""
    missing = []
    for page in ("docs/architecture.md", "docs/architecture.svg", "CONTRIBUTING.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        for path in re.findall(FILE, text):
            bases = (ROOT, ROOT / "src", ROOT / "python" / "dynet_compat")
            if not any((base / path).exists() for base in bases) and path not in ("build/site/",):
                missing.append(f"{page}: {path}")
    assert missing == []
