"""Test the lines of a script and of libraries in the report of a dry run."""

from hpu_magic.dry_runs.lines import Line, line_rows


def test_memory_of_a_library_names_its_line(dry, tmp_path):
    library = tmp_path / "site-packages" / "layers.py"
    library.parent.mkdir()
    library.write_text(
        "import torch\n"
        "def small_and_large():\n"
        "    small = torch.empty(1 << 10, device='hpu')\n"
        "    return small, torch.empty(1 << 20, device='hpu')\n"
    )
    result, _ = dry(
        f"""
        import sys
        sys.path.append({str(library.parent)!r})
        import layers
        kept = layers.small_and_large()
        """
    )
    (line,) = result.memory_lines
    assert (line.bytes, line.library.bytes) == (result.peak, 4 << 20)
    assert (
        "in train.py:5: kept = layers.small_and_large() (4.00 MiB of this in layers.py:4)"
        in str(result)
    )


def test_shortage_in_a_library_names_its_line(dry, tmp_path):
    library = tmp_path / "site-packages" / "layers.py"
    library.parent.mkdir()
    library.write_text("import torch\ndef huge():\n    return torch.empty(1 << 40, device='hpu')\n")
    result, _ = dry(
        f"""
        import sys
        sys.path.append({str(library.parent)!r})
        import layers
        layers.huge()
        """
    )
    assert "train.py:5 (layers.py:3) needs 4.00 TiB" in str(result)


def test_memory_of_generated_code_belongs_to_the_line_that_calls_it(dry):
    result, _ = dry(
        """
        import torch
        module = torch.fx.symbolic_trace(torch.nn.Linear(64, 64, device="hpu"))
        result = module(torch.ones(1 << 16, 64, device="hpu"))
        """
    )
    assert {line.place for line in result.memory_lines} == {"train.py:3", "train.py:4"}
    assert result.memory_lines[0].place == "train.py:4"


def test_long_line_is_cut_off():
    line = Line("train.py", 1, "x" * 500, bytes=1)
    (row,) = line_rows("lines", [line])
    assert row[1].endswith(f": {'x' * 119}…")
