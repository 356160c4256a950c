"""Hardware information, and tools for handling varying input shapes."""

from habana_frameworks.torch import hpu
from habana_frameworks.torch.utils.experimental._accepted import (
    _record_param,
    _record_params,
    _set_is_dynamic_quantization,
    _set_scale_attributes,
)
from habana_frameworks.torch.utils.experimental._constant_shapes import const_shape_dataloader
from habana_frameworks.torch.utils.experimental._hardware import (
    _compute_stream,
    _data_ptr,
    _get_device_type,
    _is_fp16_supported,
    _reset_device_memory,
    synDeviceType,
)
from habana_frameworks.torch.utils.experimental.detect_recompilation import (
    data_dynamicity,
    detect_recompilation_auto_model,
)
