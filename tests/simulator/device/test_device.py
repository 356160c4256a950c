"""Test PyTorch features on the simulated hpu device."""

import copy
import inspect
import io
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from hpu_magic.simulator import cards


def test_other_device_index_is_rejected():
    own = cards.acquire().module_id
    other = 2 if own == 1 else 1
    with pytest.raises(RuntimeError, match=f"active device: 0 != {other}. .* uses HPU {own}"):
        torch.ones(2, device=f"hpu:{other}")


def test_training_losses_are_identical_to_the_cpu():
    def train(device):
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Conv2d(1, 4, 3),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Dropout(0.2),
            nn.Linear(36, 10),
        ).to(device)
        optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
        torch.manual_seed(1)
        data, labels = torch.randn(16, 1, 8, 8), torch.randint(0, 10, (16,))
        torch.manual_seed(2)
        losses = []
        for _ in range(5):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(data.to(device)), labels.to(device))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    assert train("hpu") == train("cpu")


@pytest.mark.parametrize("form", ["default", "foreach", "fused"])
@pytest.mark.parametrize(
    "name",
    [
        *("SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "NAdam", "RAdam", "Adadelta", "Adamax"),
        *("ASGD", "Rprop", "LBFGS"),
    ],
)
def test_optimizer_steps_match_the_cpu(name, form, needs):
    optimizer = getattr(torch.optim, name)
    if form != "default" and form not in inspect.signature(optimizer).parameters:
        pytest.skip(f"{name} has no {form} implementation")
    if form == "fused":
        needs("FUSED_OPTIMIZERS")
    options = {} if form == "default" else {form: True}
    weights = []
    for device in ("cpu", "hpu"):
        torch.manual_seed(0)
        model = nn.Linear(4, 4).to(device)
        steps = optimizer(model.parameters(), lr=0.01, **options)
        data = torch.ones(2, 4, device=device)

        def closure(model=model, steps=steps, data=data):
            steps.zero_grad()
            loss = model(data).square().sum()
            loss.backward()
            return loss

        for _ in range(3):
            steps.step(closure)
        steps.load_state_dict(steps.state_dict())
        weights.append(model.weight.detach().cpu())
    torch.testing.assert_close(*weights)


@pytest.mark.parametrize(
    ("module", "inputs"),
    [
        (lambda: nn.LSTM(3, 4, 2, batch_first=True), lambda: (torch.randn(2, 5, 3),)),
        (lambda: nn.GRU(3, 4), lambda: (torch.randn(2, 5, 3),)),
        (lambda: nn.MultiheadAttention(8, 2), lambda: (torch.randn(4, 2, 8),) * 3),
        (lambda: nn.EmbeddingBag(10, 4), lambda: (torch.randint(0, 10, (3, 4)),)),
        (lambda: nn.ConvTranspose2d(4, 6, 3, groups=2), lambda: (torch.randn(2, 4, 8, 8),)),
        (lambda: nn.Conv3d(1, 2, 2), lambda: (torch.randn(1, 1, 4, 4, 4),)),
        (lambda: nn.Transformer(16, 2, 1, 1, dropout=0.0), lambda: (torch.randn(3, 2, 16),) * 2),
    ],
)
def test_layer_outputs_and_gradients_match_the_cpu(module, inputs):
    torch.manual_seed(0)
    on_cpu = module()
    on_hpu = copy.deepcopy(on_cpu).to("hpu")
    data = inputs()
    results = []
    for model, device in ((on_cpu, "cpu"), (on_hpu, "hpu")):
        output = model(*(tensor.to(device) for tensor in data))
        output = output[0] if isinstance(output, tuple) else output
        output.square().sum().backward()
        results.append([output, *(parameter.grad for parameter in model.parameters())])
    for expected, actual in zip(*results, strict=True):
        torch.testing.assert_close(actual.cpu(), expected)


@pytest.mark.parametrize("loss", [nn.SmoothL1Loss, nn.HuberLoss, nn.MSELoss, nn.L1Loss])
def test_losses_match_the_cpu_without_warnings(loss, recwarn):
    predicted, target = torch.randn(5), torch.randn(5)
    on_device = loss()(predicted.to("hpu"), target.to("hpu")).cpu()
    assert torch.equal(on_device, loss()(predicted, target))
    assert not recwarn.list


@pytest.mark.parametrize("place", [None, "cpu", "hpu", torch.device("hpu")])
def test_saved_tensors_keep_values_and_shared_memory(place):
    tensor = torch.randn(3, 3, device="hpu")
    file = io.BytesIO()
    torch.save({"whole": tensor, "row": tensor[1]}, file)
    file.seek(0)
    loaded = torch.load(file, map_location=place)
    assert loaded["whole"].device.type == ("cpu" if place == "cpu" else "hpu")
    assert torch.equal(loaded["whole"].cpu(), tensor.cpu())
    loaded["whole"][1] = 7
    assert loaded["row"].tolist() == [7.0, 7.0, 7.0]


def test_pickled_and_copied_tensors_stay_on_the_device():
    tensor = torch.randn(4, device="hpu")
    for copied in (pickle.loads(pickle.dumps(tensor)), copy.deepcopy(tensor)):
        assert copied.device.type == "hpu"
        assert torch.equal(copied, tensor)
        assert copied.data_ptr() != tensor.data_ptr()


def test_data_loader_pins_batches(needs):
    needs("PINNING_LOADERS")
    batches = DataLoader(TensorDataset(torch.arange(8.0)), 4, num_workers=2, pin_memory=True)
    moved = []
    for (batch,) in batches:
        assert batch.is_pinned()
        moved += batch.to("hpu", non_blocking=True).tolist()
    assert moved == list(range(8))
    assert not torch.ones(3).is_pinned()


def test_device_generator_gives_the_numbers_of_the_cpu(needs):
    needs("GENERATORS")
    on_hpu = torch.Generator("hpu").manual_seed(3)
    on_cpu = torch.Generator().manual_seed(3)
    assert on_hpu.device.type == "hpu"
    for draw in (torch.randn, torch.rand):
        assert torch.equal(draw(5, generator=on_hpu, device="hpu").cpu(), draw(5, generator=on_cpu))
    assert torch.equal(
        torch.randperm(9, generator=on_hpu, device="hpu").cpu(), torch.randperm(9, generator=on_cpu)
    )


def test_manual_seed_gives_cpu_and_device_the_same_state():
    torch.manual_seed(5)
    assert torch.equal(torch.hpu.get_rng_state(), torch.get_rng_state())
    assert torch.equal(torch.rand(4, device="hpu").cpu(), torch.rand(4))
    state = torch.get_rng_state()
    torch.hpu.manual_seed(6)
    assert torch.equal(torch.get_rng_state(), state)


def test_rng_state_is_restored_by_set_rng_state_and_fork_rng():
    state = torch.hpu.get_rng_state()
    first = torch.rand(3, device="hpu")
    torch.hpu.set_rng_state(state)
    with torch.random.fork_rng():
        assert torch.equal(torch.rand(3, device="hpu"), first)
    assert torch.equal(torch.rand(3, device="hpu"), first)
    with pytest.raises(RuntimeError, match="supports only device 0"):
        torch.hpu.get_rng_state(1)


def philox_state(seed, offset):
    data = seed.to_bytes(8, sys.byteorder) + offset.to_bytes(8, sys.byteorder)
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


@pytest.fixture
def philox():
    before = torch.hpu.get_rng_state()
    torch.hpu.set_rng_ctx("philox")
    yield
    torch.hpu.unset_rng_ctx("philox")
    torch.hpu.set_rng_state(before)


@pytest.mark.parametrize("seed", [0, 7, -1, 2**64 - 1])
@pytest.mark.parametrize("drawn", [0, 3])
def test_philox_state_reproduces_numbers(philox, seed, drawn):
    torch.hpu.manual_seed(seed)
    torch.randn(drawn, device="hpu")
    state = torch.hpu.get_rng_state()
    assert torch.equal(state[:8], philox_state(seed % 2**64, 0)[:8])
    assert torch.equal(state, torch.hpu.get_rng_state())
    first = torch.rand(3, device="hpu")
    for _ in range(2):
        torch.hpu.set_rng_state(state)
        assert torch.equal(torch.rand(3, device="hpu"), first)
    with torch.random.fork_rng():
        forked = torch.rand(3, device="hpu")
    assert torch.equal(torch.rand(3, device="hpu"), forked)


def test_generator_state_contains_the_philox_state(philox, forked_script):
    torch.hpu.set_rng_state(philox_state(5, 12))
    torch.hpu.unset_rng_ctx("philox")
    state = torch.hpu.get_rng_state()
    first = torch.rand(3, device="hpu")
    code = f"""
        import torch
        torch.hpu.set_rng_state(torch.tensor({state.tolist()}, dtype=torch.uint8))
        torch.hpu.set_rng_ctx("philox")
        print(torch.hpu.get_rng_state().tolist())
        print(torch.rand(3, device="hpu").tolist())
    """
    assert forked_script(code, simulated=True).splitlines() == [
        str(philox_state(5, 12).tolist()),
        str(first.tolist()),
    ]


def test_philox_offsets_select_different_numbers(philox):
    drawn = []
    for offset in range(0, 40_000, 4):
        torch.hpu.set_rng_state(philox_state(1, offset))
        drawn.append(torch.randint(2**62, (), device="hpu").item())
    assert len(set(drawn)) == len(drawn)
    torch.hpu.manual_seed(1)
    assert torch.randint(2**62, (), device="hpu").item() == drawn[0]


def test_philox_context_is_thread_local(philox):
    with ThreadPoolExecutor(1) as pool:
        size = pool.submit(lambda: torch.hpu.get_rng_state().numel()).result()
    assert (size, torch.hpu.get_rng_state().numel()) == (torch.get_rng_state().numel(), 16)


def test_dropout_does_not_use_the_cpu_generator():
    state = torch.get_rng_state()
    mask = F.dropout(torch.ones(1000, device="hpu"), 0.5, training=True)
    assert 300 < int((mask == 0).sum()) < 700
    assert torch.equal(torch.get_rng_state(), state)


def test_streams_and_events_have_pytorchs_interface():
    stream = torch.hpu.Stream()
    with torch.hpu.stream(stream):
        assert torch.hpu.current_stream().stream_id == stream.stream_id
    assert torch.hpu.current_stream().stream_id == 0
    start, end = torch.hpu.Event(enable_timing=True), torch.hpu.Event(enable_timing=True)
    with pytest.raises(RuntimeError, match="Both events must be recorded before"):
        start.elapsed_time(end)
    start.record()
    torch.rand(64, 64, device="hpu").sum()
    end.record()
    end.synchronize()
    assert end.query()
    assert start.elapsed_time(end) > 0
    stream.wait_stream(torch.hpu.current_stream())
    stream.wait_event(start)
    assert stream.query()
    # PyTorch's own stream accepts the events of torch.hpu.
    assert isinstance(start, torch.Event)
    assert torch.accelerator.current_stream().wait_event(start) is None
    plain = torch.Event("hpu", enable_timing=True)
    plain.record(torch.hpu.current_stream())
    assert end.elapsed_time(plain) > 0


def test_function_transforms_match_the_cpu():
    weight, data = torch.randn(4, 3, device="hpu"), torch.randn(5, 3, device="hpu")

    def energy(x):
        return (weight @ x).sin().sum()

    per_sample = torch.func.vmap(torch.func.grad(energy))(data)
    on_cpu = torch.func.vmap(torch.func.grad(lambda x: (weight.cpu() @ x).sin().sum()))(data.cpu())
    torch.testing.assert_close(per_sample.cpu(), on_cpu)
    assert torch.func.hessian(energy)(data[0]).device.type == "hpu"
    assert torch.func.jvp(torch.sin, (data,), (data,))[1].device.type == "hpu"


def test_sparse_tensors_raise_pytorchs_error():
    with pytest.raises(NotImplementedError, match="SparseHPU"):
        torch.sparse_coo_tensor([[0, 1], [1, 0]], [1.0, 2.0], (2, 2), device="hpu")
    with pytest.raises(NotImplementedError, match="strided layout"):
        torch.eye(3, device="hpu").to_sparse()


def test_conversion_to_numpy_needs_a_cpu_tensor():
    with pytest.raises(TypeError, match=r"Tensor\.cpu"):
        torch.ones(2, device="hpu").numpy()


def test_autocast_follows_the_vendors_operator_lists():
    linear = nn.Linear(4, 4).to("hpu")
    data = torch.randn(2, 4, device="hpu")
    with torch.autocast("hpu"):
        low = linear(data)
        assert low.dtype == torch.bfloat16
        assert F.softmax(data, -1).dtype == torch.bfloat16
        assert F.layer_norm(data, (4,)).dtype == torch.bfloat16
        assert torch.exp(low).dtype == torch.float32
        assert (data + data).dtype == torch.float32
        assert (low + data).dtype == torch.float32
        assert torch.relu(low).dtype == torch.bfloat16
    assert linear(data).dtype == torch.float32
    with torch.autocast("hpu", dtype=torch.float16):
        assert linear(data).dtype == torch.float16


def test_autocast_decorator_keeps_float32_gradients():
    linear = nn.Linear(4, 4).to("hpu")

    @torch.autocast("hpu", dtype=torch.bfloat16)
    def forward(data):
        return linear(data)

    forward(torch.randn(2, 4, device="hpu")).sum().backward()
    assert linear.weight.grad.dtype == torch.float32


def test_gradient_scaler_steps_float16_training():
    model = nn.Linear(3, 3).to("hpu")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("hpu", init_scale=8.0)
    before = model.weight.detach().clone()
    with torch.autocast("hpu", dtype=torch.float16):
        loss = model(torch.randn(2, 3, device="hpu")).sum()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    assert not torch.equal(model.weight, before)


def test_several_threads_train_on_the_device():
    model = nn.Linear(8, 8).to("hpu")

    def work(_):
        for _ in range(30):
            model(torch.randn(4, 8, device="hpu")).sum().backward()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))


@pytest.mark.parametrize("reentrant", [False, True])
def test_activation_checkpointing_reproduces_random_numbers(reentrant):
    from torch.utils.checkpoint import checkpoint

    data = torch.ones(64, device="hpu", requires_grad=True)
    output = checkpoint(lambda x: F.dropout(x, 0.5, training=True), data, use_reentrant=reentrant)
    output.sum().backward()
    assert torch.equal(data.grad, output)
