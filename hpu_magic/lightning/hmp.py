"""Mixed precision before autocast: the vendor's HMP, with the user's own lists of operators."""

from __future__ import annotations

import os

from hpu_magic.errors import HPUError


def convert(
    opt_level: str | None,
    verbose: bool,
    bf16_file_path: str | os.PathLike[str] | None,
    fp32_file_path: str | os.PathLike[str] | None,
) -> None:
    """Let PyTorch's functions cast on the device, in this process from now on.

    Parameters
    ----------
    opt_level : {"O1", "O2"}, optional
        By the lists (the default), or only products and convolutions in bfloat16.
    verbose : bool
        Log each cast.
    bf16_file_path, fp32_file_path : path, optional
        Files that replace the lists of O1, one operator's name a line.

    Raises
    ------
    HPUError
        The vendor's release has no HMP any more, or refuses the level or the files.
    """
    try:
        from habana_frameworks.torch.hpex import hmp
    except ImportError as missing:
        raise HPUError(
            "opt_level, verbose, bf16_file_path and fp32_file_path are options of HMP, which this "
            "release of the vendor's package has not: write precision='bf16-mixed', and name the "
            "files in LOWER_LIST and FP32_LIST before the start."
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
