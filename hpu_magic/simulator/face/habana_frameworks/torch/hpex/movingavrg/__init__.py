"""Moving averages of a model's parameters and buffers."""

from habana_frameworks.torch.hpex.movingavrg.FusedEMA import FusedEMA
