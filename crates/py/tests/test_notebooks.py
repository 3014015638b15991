"""Notebooks: each runs from its first cell to its last, and is committed without outputs."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat", reason="needs nbformat")

import freshline  # noqa: E402

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
# The imports of notebooks other than matplotlib and Polars.
NEEDS = {"sweep-on-ray": ["pyarrow", "duckdb", "ray"]}
TIMEOUT = 300
"""Seconds that a cell may take."""


def named(path: Path) -> str:
    return path.stem


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


@pytest.fixture
def short_folder() -> Iterator[str]:
    """A folder for temporary files. Its path is short: Ray has sockets in it, whose paths are limited to 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="nb-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        yield folder


@pytest.mark.parametrize("path", NOTEBOOKS, ids=named)
def test_is_committed_without_outputs(path: Path) -> None:
    notebook = nbformat.read(path, as_version=nbformat.NO_CONVERT)
    nbformat.validate(notebook)
    assert (notebook.nbformat, notebook.metadata.kernelspec.name) == (4, "python3")
    for cell in notebook.cells:
        assert cell.id and not cell.metadata, cell
        if cell.cell_type == "code":
            assert cell.outputs == [] and cell.execution_count is None, f"{path.name}: clear the outputs"
    identifiers = [cell.id for cell in notebook.cells]
    assert len(set(identifiers)) == len(identifiers)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=named)
def test_begins_with_what_the_reader_learns(path: Path) -> None:
    first, last = read(path).cells[0], read(path).cells[-1]
    assert first.cell_type == "markdown" and first.source.startswith("# ") and "learn" in first.source
    assert last.cell_type == "markdown" and "What next" in last.source


@pytest.mark.parametrize("path", NOTEBOOKS, ids=named)
def test_runs(path: Path, tmp_path: Path, short_folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    nbclient = pytest.importorskip("nbclient", reason="needs nbclient")
    for module in ["ipykernel", "matplotlib", "polars", *NEEDS.get(path.stem, [])]:
        pytest.importorskip(module, reason=f"needs {module}")
    # The kernel is another process: it imports the package that this one has imported.
    package = str(Path(freshline.__file__).parents[1])
    paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    monkeypatch.setenv("TMPDIR", short_folder)
    notebook = read(path)
    notebook.cells.append(nbformat.v4.new_code_cell("import os; print(os.getpid())"))
    client = nbclient.NotebookClient(notebook, timeout=TIMEOUT, kernel_name="python3", allow_errors=True)
    client.execute(cwd=str(tmp_path))

    outputs = [(cell.id, output) for cell in notebook.cells for output in cell.get("outputs", [])]
    for name, output in outputs:
        assert output.output_type != "error", f"cell {name}: {output.get('evalue')}"
        assert "Traceback" not in output.get("text", ""), f"cell {name}: {output.get('text')}"
    assert any("image/png" in output.get("data", {}) for _, output in outputs), "it shows no figure"
    kernel = notebook.cells[-1].outputs[0].text.strip()
    assert not Path("/proc", kernel).exists(), "a source, a monitor or a cluster keeps the kernel alive"
