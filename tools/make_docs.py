"""Pages of the documentation site: a hook of mkdocs (mkdocs.yml).

The repository's own pages are taken from where they lie. The API reference is written from what the package
has when the site is built: every public name is on exactly one page, with its signature and docstring.
"""

from __future__ import annotations

import html
import inspect
import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import dynet_compat as package
from dynet_compat import _core

ROOT = Path(__file__).resolve().parent.parent
# A link of a page to a file of the repository, which the site holds as plain text.
SOURCE_LINK = re.compile(r"\]\((?:\.\./)?((?:src|python|tests|tools|benchmarks)/[\w./-]+\.\w+)\)")
NOTEBOOK, NOTEBOOK_PAGE = "migration_guide/tutorial.ipynb", "migration_guide/tutorial.md"
DOC = re.compile(r"^DOC\((\w+),", re.M)
SECTION = re.compile(r"^(Args|Returns|Raises|Source|Example):[ \t]*", re.M)
# Pages of classes, the first that fits: what a page is called, and which classes it has.
CLASSES: dict[str, Callable[[Any], bool]] = {
    "Parameters and collections": lambda c: "Parameter" in c.__name__ or c.__name__ == "Saveable",
    "Trainers": lambda c: issubclass(c, package.Trainer),
    "Initialisers": lambda c: issubclass(c, package.PyInitializer),
    "Softmax builders": lambda c: "Softmax" in c.__name__,
    "Tree builders": lambda c: "Tree" in c.__name__,
    "Recurrent builders": lambda c: c.__name__.endswith(("Builder", "RNNState")),
    "Expressions and values": lambda c: c.__name__ in ("Expression", "Tensor") or "Value" in c.__name__,
}
# Pages of functions, by the file of src/ops/docs that documents them.
FUNCTIONS = {
    "arithmetic": "Functions of two expressions",
    "contract": "Contractions",
    "conv": "Convolution and pooling",
    "elementwise": "Element-wise functions",
    "input": "Inputs",
    "linalg": "Linear algebra",
    "list": "Functions of lists",
    "loss": "Losses",
    "lstm": "LSTM steps",
    "matmul": "Matrix products",
    "random": "Random numbers",
    "reduce": "Reductions and normalisations",
    "select": "Parts of an expression",
    "shape": "Shapes",
    "simplex": "Maps onto the simplex",
    "softmax": "Softmax functions",
}
# Names that belong together although one is a class and the other a function.
TOGETHER = {
    "Looking at a program: plans, drawings, profiles": {"ComputationGraph", "Profile", "profile"},
    "Batching over instances": {"batch_map", "instance_rng"},
    "Arrays of the GPU": {"cupy_op", "set_device_allocator"},
}
OTHER_CLASSES, OTHER_FUNCTIONS = "Graph and settings: classes", "Graph, models and settings: functions"


class Entry(NamedTuple):
    """One public name."""

    name: str
    item: Any
    page: str


def public_names() -> list[str]:
    """What scripts use, and the names of the package with a meaning of their own."""
    names = {*package.__all__, *package._NOT_DYNETS, "Profile", "profile"}
    return sorted(names | {"__version__", "__compat_version__", "__gitversion__"})


def is_ours(item: Any) -> bool:
    module = getattr(item, "__module__", None) or "_dynet"
    return callable(item) and not inspect.ismodule(item) and module.startswith(("dynet_compat", "_dynet"))


def function_topics() -> dict[str, str]:
    """Page of each function that src/ops/docs documents: one for each file there."""
    topics = {}
    for file in sorted((ROOT / "src" / "ops" / "docs").glob("*.inc")):
        title = FUNCTIONS.get(file.stem, file.stem.replace("_", " ").capitalize())
        topics.update({name: title for name in DOC.findall(file.read_text(encoding="utf-8"))})
    return topics


def entries() -> list[Entry]:
    """Every public function and class, and the page it is on."""
    topics, found = function_topics(), []
    for name in public_names():
        item = getattr(package, name)
        if not is_ours(item):
            continue
        together = next((title for title, names in TOGETHER.items() if name in names), None)
        page = together or topics.get(name) or topics.get(getattr(item, "__name__", ""))
        if page is None and inspect.isclass(item):
            page = next((title for title, fits in CLASSES.items() if fits(item)), OTHER_CLASSES)
        found.append(Entry(name, item, page or OTHER_FUNCTIONS))
    of_jobs = package.distributed
    found += [Entry(f"distributed.{name}", getattr(of_jobs, name), "Several processes and machines")
              for name in of_jobs.__all__ if callable(getattr(of_jobs, name))]  # fmt: skip
    return found


def other_names() -> list[tuple[str, str]]:
    """Public names that are neither functions nor classes of this package, and what they are."""
    out = []
    for name in public_names():
        item = getattr(package, name)
        if not is_ours(item):
            kind = f"the module `{item.__name__}`" if inspect.ismodule(item) else f"`{item!r:.60}`"
            out.append((name, kind))
    return out


# ---------------------------------------------------------------- Markdown


def plain(text: str) -> str:
    """Text that says in Markdown what it says: what stands in backticks is code."""

    def escaped(part: str) -> str:
        return re.sub(r"([\\*_{}\[\]|#~])", r"\\\1", html.escape(part, quote=False))

    parts = re.split(r"(`[^`\n]*`)", text)
    return "".join(part if part.startswith("`") else escaped(part) for part in parts)


def block(language: str, text: str) -> str:
    return f"```{language}\n{text.rstrip()}\n```\n"


def paragraphs(text: str) -> str:
    """Paragraphs; indented lines are shown as they are."""
    out = []
    for part in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        shown = all(line.startswith("    ") for line in part.splitlines())
        out.append(block("text", inspect.cleandoc(part)) if shown else plain(part) + "\n")
    return "\n".join(out)


def fields(text: str) -> str:
    """A list of `name: what it is` lines, of which each may go on on indented lines."""
    text = inspect.cleandoc("\n" + text)
    out = []
    for item in re.split(r"\n(?=\S)", text):
        item = " ".join(item.split())
        named = re.match(r"((?:\*{0,2}\w+)(?:, \*{0,2}\w+)*): (.*)", item)
        out.append(f"- `{named.group(1)}`: {plain(named.group(2))}" if named else f"- {plain(item)}")
    return "\n".join(out) + "\n"


def documentation(text: str) -> str:
    """A docstring of this package as Markdown."""
    parts = SECTION.split(inspect.cleandoc(text))
    out = [paragraphs(parts[0])] if parts[0].strip() else []
    for word, body in zip(parts[1::2], parts[2::2]):
        if word == "Example":
            out.append("Example:\n\n" + block("pycon", inspect.cleandoc("\n" + body)))
        elif word == "Source":
            out.append(f"Source: {plain(' '.join(body.split()))}\n")
        else:
            out.append(f"{word}:\n\n{fields(body)}")
    return "\n".join(out)


def signature(name: str, item: Any) -> str:
    try:
        text = str(inspect.signature(item))
    except (TypeError, ValueError):
        return f"{name}(...)"
    return name + re.sub(r"(: |-> )'([^']*)'", r"\1\2", text).replace("(/)", "()")


def members(cls: type) -> Iterator[tuple[str, Any, Any]]:
    """(name, attribute, object) of the public members of a class, or of a base that has no page."""
    seen = set()
    for base in cls.__mro__:
        if base is object or (base is not cls and not base.__name__.startswith("_")):
            continue
        for name, raw in sorted(vars(base).items()):
            if name.startswith("_") or name in seen:
                continue
            seen.add(name)
            described = isinstance(raw, property) or inspect.isgetsetdescriptor(raw)
            if described or hasattr(cls, name):  # .T and its kin only say what to write instead
                yield name, raw, raw if described else getattr(cls, name)


def member_text(owner: str, name: str, raw: Any, item: Any) -> str:
    out = [f"### `{owner}.{name}` {{#{owner}.{name}}}\n"]
    if callable(item):
        out.append(block("python", signature(name, item).replace("(self, ", "(").replace("(self)", "()")))
    elif not isinstance(raw, property) and not inspect.isgetsetdescriptor(raw):
        return out[0] + f"\n`{item!r:.60}`\n"
    return "\n".join([*out, documentation(item.__doc__ or "")])


def entry_text(entry: Entry) -> str:
    name, item = entry.name, entry.item
    out = [f"## `{name}` {{#{name}}}\n"]
    if getattr(item, "__name__", name) != name and getattr(package, item.__name__, None) is item:
        return "\n".join([*out, f"Another name of [`{item.__name__}`]({item.__name__}).\n"])
    out += [block("python", signature(name, item)), documentation(item.__doc__ or "")]
    if inspect.isclass(item):
        bases = [b.__name__ for b in item.__mro__[1:] if b.__name__ in public_names()]
        if bases:
            out.append("Inherits from " + ", ".join(f"[`{b}`]({b})" for b in bases) + ".\n")
        out += [member_text(name, *member) for member in members(item)]
    return "\n".join(out)


# ---------------------------------------------------------------- pages


def slug(title: str) -> str:
    return re.sub(r"\W+", "_", title.lower()).strip("_")


def table_of_ops() -> str:
    lines = [
        "# The op table\n",
        "Each operation of the engine is one row; rows that are not public are recorded by functions of other"
        " names.\n",
        "| row | public | computes | gradient | what shares a launch |",
        "|---|---|---|---|---|",
    ]
    for row in _core.op_table():
        cells = (
            f"`{row['name']}`", "yes" if row["public"] else "", plain(row["formula"]),
            "yes" if row["gradient"] else "none", plain(row["batch"]),
        )  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def api_pages() -> dict[str, str]:
    """Text of each page of the API reference, by its path in the site."""
    found = entries()
    page_of = {entry.name: slug(entry.page) for entry in found}
    titles = list(dict.fromkeys(sorted(entry.page for entry in found)))
    pages = {}
    for title in titles:
        text = "\n".join(entry_text(entry) for entry in found if entry.page == title)
        # links between names, now that their pages are known
        text = re.sub(r"(\[`\w+`\])\((\w+)\)", lambda m: f"{m[1]}({page_of[m[2]]}.md#{m[2]})", text)
        pages[f"api/{slug(title)}.md"] = f"# {title}\n\n{text}"
    index = [
        "# API reference\n",
        "`import dynet_compat as dy` gives these names. Shapes are written {rows,columns}xB: B is the batch"
        " size.\n",
    ]
    for title in titles:
        names = ", ".join(f"[`{e.name}`]({slug(title)}.md#{e.name})" for e in found if e.page == title)
        index.append(f"**[{title}]({slug(title)}.md)**: {names}\n")
    index += ["**Values and modules**\n", *(f"- `{name}`: {kind}" for name, kind in other_names())]
    pages["api/op_table.md"] = table_of_ops()
    return {"api/README.md": "\n".join(index) + "\n", **pages}


def own_pages() -> list[str]:
    guide = (ROOT / "migration_guide" / "README.md").read_text(encoding="utf-8")
    listed = [f"migration_guide/{name}" for name in re.findall(r"\]\((\w+\.(?:md|ipynb))\)", guide)]
    listed = [name.replace(".ipynb", ".md") for name in listed]  # a notebook has a page of its cells
    return ["README.md", "migration_guide/README.md", *listed, "CONTRIBUTING.md", "CHANGELOG.md"]


def linked_sources() -> set[str]:
    """Files of the repository that pages link to."""
    pages = [ROOT / page for page in own_pages() if page != NOTEBOOK_PAGE]
    pages += sorted((ROOT / "docs").glob("*.md"))
    return {path for page in pages for path in SOURCE_LINK.findall(page.read_text(encoding="utf-8"))}


def notebook_page(name: str) -> str:
    """The cells of a notebook as a page, which offers the notebook itself below its heading."""
    file = ROOT / name
    out = []
    for cell in json.loads(file.read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"])
        out.append(block("python", text) if cell["cell_type"] == "code" else text + "\n")
    out.insert(1, f"[Download this page as a notebook]({file.name})\n")
    return "\n".join(out)


def for_site(text: str) -> str:
    """GitHub's Markdown as Python-Markdown reads it."""
    parts = re.split(r"(^```.*?^```$)", text, flags=re.M | re.S)
    for i, part in enumerate(parts):
        if part.startswith("```"):  # the first word after the fence is the language; others are for the tests
            parts[i] = re.sub(r"\A```(\w+)[^\n]*", r"```\1", part)
        else:  # a list needs an empty line before it
            parts[i] = re.sub(r"^((?![-*\d|#>\s]).+)\n(?=(?:- |\d+\. ))", r"\1\n\n", part, flags=re.M)
    return "".join(parts)


# ---------------------------------------------------------------- mkdocs


def on_config(config: Any) -> Any:
    pages = [page for page in own_pages() if page.startswith("migration_guide/")]
    guide = [{"Tutorial": page} if page == NOTEBOOK_PAGE else page for page in pages]
    api = list(api_pages())
    config["nav"] = [
        {"Start": "README.md"},
        {"Moving a program here": guide},
        {"Programs that were run": "programs.md"},
        {"API reference": api},
        {"Contributing": "CONTRIBUTING.md"},
        {"Architecture": "architecture.md"},
        {"Changes": "CHANGELOG.md"},
    ]
    return config


def on_files(files: Any, config: Any) -> Any:
    mkdocs_files: ModuleType = __import__("mkdocs.structure.files", fromlist=["File"])
    written = {NOTEBOOK_PAGE: notebook_page(NOTEBOOK), **api_pages()}
    for page in [*own_pages(), NOTEBOOK]:
        if page not in written:
            files.append(mkdocs_files.File.generated(config, page, abs_src_path=str(ROOT / page)))
    for path in linked_sources():
        written[f"source/{path}.txt"] = (ROOT / path).read_text(encoding="utf-8")
    for page, text in written.items():
        files.append(mkdocs_files.File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    if page.file.src_uri != NOTEBOOK_PAGE:  # other pages lead to the page, not the download
        markdown = markdown.replace(f"]({Path(NOTEBOOK).name})", f"]({Path(NOTEBOOK).stem}.md)")
    folder = os.path.dirname(page.file.src_uri)
    up = "../" if folder else ""
    markdown = SOURCE_LINK.sub(lambda m: f"]({up}source/{m[1]}.txt)", markdown)
    if not folder:  # pages of docs/ are at the top of the site, beside those of the repository
        markdown = re.sub(r"\]\((?:\.\./|docs/)(\w+\.md)", r"](\1", markdown)
    return for_site(markdown)
