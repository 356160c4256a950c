"""HPU Graphs: wrapped modules and functions, and which inputs share a graph."""

from lazy_process import MODEL


def test_a_wrapped_module_gives_the_modules_results_for_every_kind_of_input(lazy_process):
    lines = lazy_process(
        MODEL
        + """
wrapped = torch.hpu.wrap_in_hpu_graph(other.eval())
print(wrapped is other)
with torch.no_grad():
    for rows in (3, 5, 3, 5):
        x = torch.randn(rows, 8, device="hpu")
        kept = x.cpu()
        print(same(wrapped(x), plain(x)), same(x, kept))
    print(same(wrapped(x, bypass_hpu_graphs=True), plain(x)))
    first = wrapped(x)
    print(wrapped(torch.randn(5, 8, device="hpu")) is first)
    wrapped.clear_inputs()
    print(same(wrapped(x), plain(x)))
    wrapped.clear_cache()
    print(same(wrapped(x), plain(x)))
"""
    )
    assert lines == ["True", *4 * ["True True"], *4 * ["True"]]


def test_a_wrapped_function_captures_once_for_each_kind_of_input(lazy_process):
    lines = lazy_process(
        """
        calls = []
        def double(x, by=2):
            calls.append(x.shape)
            return {"out": x * by}
        graphed = torch.hpu.wrap_in_hpu_graph_func(double, max_graphs=2)
        for rows in (1, 2, 1, 2, 3, 3):
            out = graphed(torch.ones(rows, device="hpu"))["out"]
            print(out.tolist(), len(calls))
        """
    )
    assert lines == [
        "[2.0] 1",
        "[2.0, 2.0] 2",
        "[2.0] 2",
        "[2.0, 2.0] 2",
        "[2.0, 2.0, 2.0] 3",
        "[2.0, 2.0, 2.0] 4",  # two graphs are the most: the third kind runs without one
    ]


def test_warmup_mode_hands_the_last_results_back_and_runs_only_what_was_recorded(lazy_process):
    assert lazy_process(
        """
        calls = []
        class Double(torch.nn.Module):
            def forward(self, x):
                calls.append(x.shape)
                return x * 2
        wrapped = torch.hpu.wrap_in_hpu_graph(Double())
        one, five = torch.ones(2, device="hpu"), torch.full((2,), 5.0, device="hpu")
        print(wrapped(one, warmup_mode=True).tolist(), len(calls))
        first = wrapped(one)
        from hpu_magic.simulator import engine
        waiting = five + 1
        print(engine.load().pending_operations())
        print(wrapped(five, warmup_mode=True) is first)
        print(engine.load().pending_operations(), first.tolist())
        print(wrapped(five).tolist(), len(calls))
        """
    ) == ["[2.0, 2.0] 1", "1", "True", "0 [2.0, 2.0]", "[10.0, 10.0] 1"]


def test_the_cache_key_is_made_of_shapes_views_values_and_autocast(lazy_process):
    (line,) = lazy_process(
        """
        from habana_frameworks.torch.hpu.graphs import input_hash
        x = torch.ones(2, 3, device="hpu")
        key = input_hash((x, {"scale": 2}))
        with torch.autocast("hpu"):
            autocast = input_hash((x, {"scale": 2}))
        print([
            key == input_hash((torch.zeros(2, 3, device="hpu"), {"scale": 2})),
            key == input_hash((x.bfloat16(), {"scale": 2})),
            key == input_hash((torch.ones(3, 2, device="hpu").t(), {"scale": 2})),
            key == input_hash((x, {"scale": 3})),
            key == autocast,
        ])
        """
    )
    assert line == "[True, True, False, False, False]"


def test_values_with_one_hash_and_autocasts_of_two_dtypes_are_different_inputs(lazy_process):
    assert lazy_process(
        """
        summed = torch.hpu.wrap_in_hpu_graph_func(lambda x, axis: x.sum(axis))
        x = torch.arange(4.0).reshape(2, 2).to("hpu")
        print([summed(x, axis).tolist() for axis in (-1, -2)])
        product = torch.hpu.wrap_in_hpu_graph_func(lambda x: x @ x)
        for dtype in (torch.bfloat16, torch.float16):
            with torch.autocast("hpu", dtype=dtype):
                print(product(x).dtype)
        """
    ) == ["[[1.0, 5.0], [2.0, 4.0]]", "torch.bfloat16", "torch.float16"]


def test_a_wrapped_function_takes_expanded_inputs_and_any_mode_of_autograd(lazy_process):
    assert lazy_process(
        """
        double = torch.hpu.wrap_in_hpu_graph_func(lambda x: x * 2)
        row = torch.arange(3.0).to("hpu")
        with torch.inference_mode():
            print(double(row.expand(2, 3)).tolist())
        with torch.no_grad():
            print(double((row + 1).expand(2, 3)).tolist())
        """
    ) == ["[[0.0, 2.0, 4.0], [0.0, 2.0, 4.0]]", "[[2.0, 4.0, 6.0], [2.0, 4.0, 6.0]]"]


def test_an_input_of_another_dtype_is_refused_with_both(lazy_process):
    (line,) = lazy_process(
        """
        graphed = torch.hpu.wrap_in_hpu_graph_func(lambda x: x + 1)
        graphed(torch.ones(2, device="hpu"))
        try:
            graphed(torch.ones(2, dtype=torch.int32, device="hpu"))
        except RuntimeError as error:
            print(error)
        """
    )
    assert "torch.int32" in line
    assert "torch.float32" in line


def test_a_refusal_that_the_captured_function_swallows_is_told(lazy_process):
    lines = lazy_process(
        """
        def peek(x):
            try:
                float(x.sum())
            except RuntimeError:
                pass
            return x * 3
        graphed = torch.hpu.wrap_in_hpu_graph_func(peek)
        for value in (1.0, 5.0):
            try:
                graphed(torch.full((2,), value, device="hpu"))
            except RuntimeError as error:
                print(error)
        """
    )
    assert len(lines) == 2
    assert all("The capture has ended already, with an error" in line for line in lines)


def test_a_function_that_hands_its_inputs_on_may_be_wrapped(lazy_process):
    assert lazy_process(
        """
        same = torch.hpu.wrap_in_hpu_graph(torch.nn.Identity())
        print([same(torch.full((1,), each, device="hpu")).item() for each in (1.0, 2.0)])
        """
    ) == ["[1.0, 2.0]"]
