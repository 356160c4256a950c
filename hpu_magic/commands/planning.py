"""Commands for planning without a card: estimates of time and memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal

from hpu_magic.commands.parameters import Card, Inputs, Model, Variable

if TYPE_CHECKING:
    from hpu_magic.estimates.collective import CollectiveEstimate
    from hpu_magic.estimates.generation.result import GenerationEstimate
    from hpu_magic.estimates.result import Estimate
    from hpu_magic.estimates.traced_step import TracedStep

Collective = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]
Mode = Literal["eager", "lazy", "graphs", "compile"]
StepDtype = Literal["fp32", "bf16", "bf16-mixed", "fp8"]
Dtype = Literal["fp32", "bf16", "fp8"]
Checkpointing = Literal["none", "full", "selective"]
Attention = Literal["torch", "fused"]
Optimizer = Annotated[Any, Variable("optimizer", or_text=True)]
Loss = Annotated[Callable[..., Any] | None, Variable("function")]
DeepSpeed = Annotated[Any, Variable("mapping", or_path=True)]
Batch = int | Literal["largest"]


def estimate(
    model: Model,
    inputs: Inputs,
    *,
    train: bool = True,
    card: Card = "gaudi2",
    cards: int = 1,
    parallel: str | None = None,
    mode: Mode | None = None,
    dtype: StepDtype | None = None,
    optimizer: Optimizer = "adamw",
    checkpointing: Checkpointing = "none",
    accumulate: int = 1,
    batch: Batch | None = None,
    loss: Loss = None,
    attention: Attention = "torch",
    expert_parallel: int = 1,
    imbalance: float = 1.0,
    deepspeed: DeepSpeed = None,
) -> Estimate:
    """Estimate the time and memory of a step on Gaudi cards, without a card or any computation.

    The operations of the step are traced with tensors that use no memory. The time is calculated
    with constants fitted to published measurements, and the memory from the lifetimes of tensors.
    The model does not change.

    Parameters
    ----------
    model : torch.nn.Module
        A module on ``meta``, ``cpu`` or ``hpu``.
    inputs : torch.Tensor, sequence of torch.Tensor, or dict
        Arguments of the model, on any device, with the batch size of one card. Only shapes and
        dtypes matter. A dict is passed as keyword arguments.
    train : bool
        Estimate a training step; ``train=False`` estimates a forward pass.
    card : {"gaudi", "gaudi2", "gaudi3"}
        The generation of the card.
    cards : int
        Number of cards.
    parallel : str, optional
        How the cards share the work: ddp, zero1, zero2, zero3, fsdp, tp=N, pp=N, or a combination
        such as tp=2,pp=2,zero1. The default is ddp. With ZeRO, the optimizer updates float32 copies
        of the weights, like DeepSpeed; with FSDP, it updates the weights of the model.
    mode : {"eager", "lazy", "graphs", "compile"}, optional
        The execution mode; the default is that of this process, or ``compile`` for a compiled
        model.
    dtype : {"fp32", "bf16", "bf16-mixed", "fp8"}, optional
        The precision; the default is the dtype of the parameters.
    optimizer : torch.optim.Optimizer, str or None
        An optimizer, a name such as adamw or fusedadamw, or none.
    checkpointing : {"none", "full", "selective"}
        Layers that the backward pass recomputes: none, all, or all except matrix multiplications
        with weights.
    accumulate : int
        Number of batches per optimizer step.
    batch : int or "largest", optional
        Batch size per card; the default is that of the inputs, and ``largest`` finds the largest
        one that fits.
    loss : callable, optional
        Computes the loss from the output; the default is the output's ``loss``, or its sum.
    attention : {"torch", "fused"}
        How PyTorch's attention runs: as several operations, or as the vendor's FusedSDPA, which
        keeps the scores on the die. Attention in the model's own code does not change.
    expert_parallel : int
        Number of cards that share the experts of a mixture-of-experts model: each card stores some
        of them, and the cards exchange tokens. The batch and all other weights are distributed as
        usual.
    imbalance : float
        Tokens that the busiest of these cards processes in its experts, divided by the mean; with
        1.0, all cards process the same number. The estimate is for the busiest card.
    deepspeed : dict or path, optional
        DeepSpeed's configuration: the path of its JSON file, or a dict. The configuration
        determines how the cards share the work, and its precision, optimizer and number of batches
        per step replace the arguments. The memory includes DeepSpeed's buffers, as in version
        0.19.8.

    Returns
    -------
    Estimate
        ``seconds`` per step, ``samples_per_second`` and ``tokens_per_second`` over all cards,
        ``peak`` in bytes per card, ``largest_batch``, ``band``, the range of factors within which a
        measurement is expected, and the parts of ``peak`` and ``seconds``: ``memory`` and
        ``by_kind``.

    Raises
    ------
    EstimateError
        An argument is invalid, the model does not accept the inputs, or the operations depend on
        tensor values.
    """
    from hpu_magic.estimates.estimate import estimate as estimate_step

    return estimate_step(
        model,
        *positional(inputs),
        train=train,
        card=card,
        cards=cards,
        parallel=parallel,
        mode=mode,
        dtype=dtype,
        optimizer=chosen_optimizer(optimizer),
        checkpointing=checkpointing,
        accumulate=accumulate,
        batch=batch,
        loss=loss,
        attention=attention,
        expert_parallel=expert_parallel,
        imbalance=imbalance,
        deepspeed=deepspeed,
    )


def estimate_generation(
    model: Model,
    *,
    prompt: int,
    new_tokens: int,
    batch: Batch = 1,
    card: Card = "gaudi2",
    cards: int = 1,
    parallel: str | None = None,
    mode: Mode = "graphs",
    dtype: Dtype = "bf16",
    cache: Literal["static", "dynamic"] = "static",
    cache_dtype: Dtype | None = None,
    bucket: int | None = 128,
    capture_prompt: bool = False,
    attention: Attention = "torch",
    expert_parallel: int = 1,
    imbalance: float = 1.0,
) -> GenerationEstimate:
    """Estimate the time and memory of text generation on Gaudi cards, without a card.

    A pass over the prompts and passes over one more token are traced with tensors that use no
    memory. The model does not change.

    Parameters
    ----------
    model : torch.nn.Module
        A causal language model from transformers, on ``meta``, ``cpu`` or ``hpu``.
    prompt : int
        Number of tokens per prompt.
    new_tokens : int
        Number of tokens to generate after each prompt.
    batch : int or "largest"
        Number of sequences that each card, or group of cards that share the model, generates at
        the same time; ``largest`` finds the largest number that fits.
    card : {"gaudi", "gaudi2", "gaudi3"}
        The generation of the card.
    cards : int
        Number of cards.
    parallel : str, optional
        How the cards share the work: tp=N, pp=N, ddp, or a combination such as tp=4,pp=2. The
        default is tensor parallelism over all cards.
    mode : {"graphs", "lazy", "eager", "compile"}
        The execution mode.
    dtype : {"bf16", "fp32", "fp8"}
        The precision; with fp8, linear layers and their weights use FP8.
    cache : {"static", "dynamic"}
        A static cache reserves memory for all tokens at the start; a dynamic cache grows in each
        step.
    cache_dtype : {"fp32", "bf16", "fp8"}, optional
        The dtype of keys and values in the cache; the default is that of the model.
    bucket : int, optional
        In each step, read only the current tokens of a static cache, rounded up to a multiple of
        this number, like optimum-habana's ``bucket_internal``. With None, each step reads the
        complete cache.
    capture_prompt : bool
        Also capture the pass over the prompt in an HPU Graph, which uses more memory.
    attention : {"torch", "fused"}
        How PyTorch's attention runs: as several operations, or as the vendor's FusedSDPA, which
        keeps the scores on the die. Attention in the model's own code does not change.
    expert_parallel : int
        Number of cards that share the experts of a mixture-of-experts model, as in estimate. These
        cards generate different sequences; if there are more cards, the default is tensor
        parallelism over the rest.
    imbalance : float
        Tokens that the busiest of these cards processes in its experts, divided by the mean.

    Returns
    -------
    GenerationEstimate
        ``first_token_seconds``, ``token_seconds``, ``tokens_per_second`` (new tokens over all
        cards, including the time for the prompt), ``peak`` in bytes per card, ``largest_batch``,
        ``band``, the range of factors within which a measurement is expected, and the parts of
        ``peak`` and ``seconds``: ``memory`` and ``by_kind``.

    Raises
    ------
    EstimateError
        The model does not generate with a cache, an argument is invalid, one sequence does not fit
        with ``batch="largest"``, or the operations depend on tensor values.
    """
    from hpu_magic.estimates.generation.estimate import estimate_generation as estimated

    return estimated(
        model,
        batch,
        prompt,
        new_tokens,
        card=card,
        cards=cards,
        parallel=parallel,
        mode=mode,
        dtype=dtype,
        cache=cache,
        cache_dtype=cache_dtype,
        bucket=bucket,
        capture_prompt=capture_prompt,
        attention=attention,
        expert_parallel=expert_parallel,
        imbalance=imbalance,
    )


def trace(
    model: Model,
    inputs: Inputs,
    *,
    train: bool = True,
    optimizer: Optimizer = "adamw",
    checkpointing: Checkpointing = "none",
    loss: Loss = None,
) -> TracedStep:
    """Trace a step once, to estimate it for many cards, layouts and precisions.

    Call ``trace(model, inputs).estimate(card="gaudi3", cards=8)``. A new estimate takes much less
    time than a new trace. The model must not change between estimates.

    Parameters
    ----------
    model : torch.nn.Module
        A module on ``meta``, ``cpu`` or ``hpu``.
    inputs : torch.Tensor, sequence of torch.Tensor, or dict
        Arguments of the model, as in estimate.
    train : bool
        Trace a training step; ``train=False`` traces a forward pass.
    optimizer : torch.optim.Optimizer, str or None
        An optimizer, a name such as adamw or fusedadamw, or none.
    checkpointing : {"none", "full", "selective"}
        Layers that the backward pass recomputes, as in estimate.
    loss : callable, optional
        Computes the loss from the output; the default is the output's ``loss``, or its sum.

    Returns
    -------
    TracedStep
        Its method ``estimate`` accepts the other arguments of `estimate`. Only other batch sizes,
        accumulated gradients, the optimizer of a DeepSpeed configuration, and changes between fp32,
        bf16 and bf16-mixed need a new trace.

    Raises
    ------
    EstimateError
        An argument is invalid, the model does not accept the inputs, or the operations depend on
        tensor values.
    """
    from hpu_magic.estimates.estimate import trace as trace_step

    return trace_step(
        model,
        *positional(inputs),
        train=train,
        optimizer=chosen_optimizer(optimizer),
        checkpointing=checkpointing,
        loss=loss,
    )


def estimate_collective(
    operation: Collective, size: int, *, card: Card = "gaudi2", cards: int = 8
) -> CollectiveEstimate:
    """Estimate the time of one collective operation between Gaudi cards, without a card.

    Parameters
    ----------
    operation : {"all_reduce", "all_gather", "reduce_scatter", "all_to_all"}
        The operation.
    size : int
        Size in bytes of the complete tensor on each card, before a reduce-scatter or after an
        all-gather.
    card : {"gaudi", "gaudi2", "gaudi3"}
        The generation of the card.
    cards : int
        Number of cards.

    Returns
    -------
    CollectiveEstimate
        ``seconds``, ``bytes_per_second``, and ``band``, the range of factors within which a
        measurement is expected.

    Raises
    ------
    EstimateError
        An argument is invalid.
    """
    from hpu_magic.estimates.collective import estimate_collective as estimated

    return estimated(operation, size, card=card, cards=cards)


def positional(inputs: Any) -> tuple[Any, ...]:
    """Return the positional arguments of a model."""
    return tuple(inputs) if isinstance(inputs, list | tuple) else (inputs,)


def chosen_optimizer(optimizer: Any) -> Any:
    """Return an optimizer argument, or None for the text ``none``."""
    return None if isinstance(optimizer, str) and optimizer.lower() == "none" else optimizer
