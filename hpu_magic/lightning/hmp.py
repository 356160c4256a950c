"""Enable HMP, the vendor's mixed-precision API that predates autocast."""

from __future__ import annotations

import os

from hpu_magic.errors import HPUError


def convert(
    opt_level: str | None,
    verbose: bool,
    bf16_file_path: str | os.PathLike[str] | None,
    fp32_file_path: str | os.PathLike[str] | None,
) -> None:
    """Make PyTorch's functions cast device tensors for the rest of the process.

    ``O1`` (the default) casts according to operator lists. The files replace these lists and
    contain one operator per line. ``O2`` casts only matrix multiplications and convolutions to
    bfloat16. `verbose` logs each cast.

    Raises
    ------
    HPUError
        The vendor's release no longer includes HMP, or HMP rejects the level or the files.
    """
    try:
        from habana_frameworks.torch.hpex import hmp
    except ImportError as missing:
        raise HPUError(
            "opt_level, verbose, bf16_file_path and fp32_file_path are options of HMP, which this "
            "release of the vendor's package does not include: write precision='bf16-mixed', and "
            "set LOWER_LIST and FP32_LIST to the files before Python starts."
        ) from missing
    try:
        hmp.convert(
            opt_level=opt_level or "O1",
            bf16_file_path=os.fspath(bf16_file_path or ""),
            fp32_file_path=os.fspath(fp32_file_path or ""),
            isVerbose=verbose,
        )
    except ValueError as refusal:
        raise HPUError(str(refusal)) from refusal
