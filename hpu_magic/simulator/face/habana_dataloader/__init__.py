"""The vendor's data loader for PyTorch, with the media pipeline for folders of JPEG files."""

from habana_dataloader._loader import HabanaDataLoader
