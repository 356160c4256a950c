"""Moving averages of a model's values."""

from habana_frameworks.torch.hpex.movingavrg.FusedEMA import FusedEMA
