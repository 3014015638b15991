"""The user guide: its programs run in the order of the page, in one namespace."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from support import blocks, run_page

REPOSITORY = Path(__file__).parents[3]
GUIDE = REPOSITORY / "docs" / "python.md"
README = REPOSITORY / "README.md"
TOOLS = Path(__file__).parents[1] / "tools"
NOTEBOOKS = Path(__file__).parents[1] / "notebooks"


def test_guide_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ["numpy", "matplotlib", "polars", "pyarrow"]:
        pytest.importorskip(module, reason=f"needs {module}")
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.chdir(tmp_path)
    assert run_page(GUIDE) == {"sh", "python", "python,no_run"}


@pytest.mark.parametrize("page", [GUIDE, README], ids=lambda page: page.name)
def test_pages_begin_like_the_example(page: Path) -> None:
    first = next(text for _, language, text in blocks(page.read_text()) if language == "python")
    example = (Path(__file__).parents[1] / "examples" / "readme.py").read_text()
    assert first in example


def test_guide_names_every_notebook() -> None:
    text = GUIDE.read_text()
    for notebook in NOTEBOOKS.glob("*.ipynb"):
        assert f"`{notebook.stem}`" in text


def test_links_of_the_guide_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", GUIDE.read_text()):
        assert (GUIDE.parent / target).exists(), target


def test_reference_is_up_to_date() -> None:
    done = subprocess.run([sys.executable, str(TOOLS / "api.py"), "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
