"""Moving averages of the values in a model."""

from habana_frameworks.torch.hpex.movingavrg.FusedEMA import FusedEMA
