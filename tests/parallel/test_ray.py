"""Test Ray's detection of cards, and Ray Train with one card per worker."""

import json
import os
import secrets
import sys
import tempfile

import pytest
from started_process import completed

pytest.importorskip("ray", reason="`make ray` has an environment with ray")

START = """
import json, os
import ray

def start():
    ray.init(include_dashboard=False, num_cpus=4)
"""
# Ray reports the type of the cards if the process uses one.
RESOURCES = """
import torch
kept = torch.ones(1, device="hpu")
start()
resources = ray.cluster_resources()
print(resources["HPU"], resources["accelerator_type:Intel-GAUDI2"])
print([name for name in resources if name.startswith("node:127")])
"""
TRAINING = """
import torch
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer

def work(settings):
    import habana_frameworks.torch
    from torch import distributed, nn
    from torch.nn.parallel import DistributedDataParallel

    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(4, 1).to("hpu"))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    rank = distributed.get_rank()
    for step in range(3):
        x = torch.full((2, 4), 1.0 + step + rank, device="hpu")
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    seen = {
        "rank": rank,
        "backend": distributed.get_backend(),
        "modules": os.environ["HABANA_VISIBLE_MODULES"],
        "weights": model.module.weight.tolist(),
    }
    with open(f"{settings['folder']}/{rank}.json", "w") as file:
        json.dump(seen, file)

if __name__ == "__main__":
    import sys
    start()
    TorchTrainer(
        work,
        train_loop_config={"folder": sys.argv[1]},
        torch_config=TorchConfig(backend="hccl"),
        scaling_config=ScalingConfig(num_workers=2, resources_per_worker={"HPU": 1}),
        run_config=RunConfig(storage_path=sys.argv[1]),
    ).fit()
"""


@pytest.fixture
def run(tmp_path):
    """Run a program with two simulated cards, and return the lines of its output."""

    def run(program):
        path = tmp_path / "program.py"
        path.write_text(START + program)
        variables = {"HPU_MAGIC_SIMULATOR": "1", "HPU_MAGIC_CARDS": "2"}
        variables |= {"HPU_MAGIC_CARDS_DIR": str(tmp_path / "cards"), "RAY_DEDUP_LOGS": "0"}
        # Ray then listens on the loopback interface only.
        variables |= {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
        variables |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        # Names of sockets must be short.
        with tempfile.TemporaryDirectory(prefix="ray_") as folder:
            environment = {**os.environ, **variables, "RAY_TMPDIR": folder}
            done = completed(sys.executable, path, tmp_path, env=environment, timeout=600)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return run


def test_simulated_cards_are_a_resource(run):
    assert run(RESOURCES)[-2:] == ["2.0 1.0", "['node:127.0.0.1']"]


def test_each_worker_trains_on_its_own_card(run, tmp_path):
    run(TRAINING)
    seen = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    assert [each["rank"] for each in seen] == [0, 1]
    assert {each["backend"] for each in seen} == {"hccl"}
    assert {each["modules"] for each in seen} == {"0", "1"}
    assert seen[0]["weights"] == seen[1]["weights"] == [pytest.approx(trained_on_cpu())]


def trained_on_cpu():
    """Return the weights after the same steps with the rows of both workers in one batch."""
    import torch

    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(3):
        x = torch.tensor([1.0 + step, 2.0 + step])[:, None].expand(2, 4)
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    return model.weight[0].tolist()
