"""Rules of the source tree that no linter checks."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MOST_FILE_LINES = 700
MOST_FUNCTION_LINES = 60
FORBIDDEN_NAMES = {"utils", "helpers", "common", "misc", "manager"}

FILES = [
    path
    for folder in ("src", "workloads", "benchmarks", "examples")
    for path in sorted((ROOT / folder).rglob("*.py"))
]


def test_no_file_is_too_long():
    lengths = {path.name: len(path.read_text().splitlines()) for path in FILES}
    assert {name: lines for name, lines in lengths.items() if lines > MOST_FILE_LINES} == {}


def test_no_function_is_too_long():
    """Not counting its docstring. Kernels may be long, because numba compiles each of them as a whole."""
    long = {}
    for path in FILES:
        if "kernels" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                first = node.body[1] if ast.get_docstring(node) and len(node.body) > 1 else node.body[0]
                lines = (node.end_lineno or 0) - first.lineno
                if lines > MOST_FUNCTION_LINES:
                    long[f"{path.name}: {node.name}"] = lines
    assert long == {}


def test_no_file_or_folder_has_a_meaningless_name():
    assert [path for path in FILES if {path.stem, path.parent.name} & FORBIDDEN_NAMES] == []


@pytest.mark.parametrize(("heading", "most_files"), [("### SSIJ", 20), ("## A row's way through DINER", 22)])
def test_an_algorithm_can_be_followed_through_few_files(heading, most_files):
    page = (ROOT / "docs" / "how_it_works.md").read_text()
    walk = re.split(r"^##", page.split(f"\n{heading}\n")[1], flags=re.MULTILINE)[0]
    files = re.findall(r"^\| \d+ \| \[`[^`]+`\]\(\.\./([^)]+)\)", walk, re.MULTILINE)
    assert most_files // 2 < len(files) == len(set(files)) <= most_files
    assert [file for file in files if not (ROOT / file).exists()] == []
