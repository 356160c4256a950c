"""``%%hpu_capture``, ``%hpu_replay``, ``%hpu_graphs`` and ``%hpu_wrap``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.core.magic import cell_magic, line_magic, magics_class

from hpu_magic.commands import graphs as commands
from hpu_magic.magics import cell as cells
from hpu_magic.magics.command import CommandMagics
from hpu_magic.magics.declared import options_of, split_list
from hpu_magic.magics.settings import HPUMagics

if TYPE_CHECKING:
    from hpu_magic.runtime.graphs.capture import Capture
    from hpu_magic.runtime.graphs.graphs import GraphList, ReplayReport
    from hpu_magic.runtime.graphs.wrapping import WrapReport


@magics_class
class GraphMagics(CommandMagics):
    """Capture cells and models in HPU Graphs."""

    def __init__(self, shell: Any, settings: HPUMagics) -> None:
        super().__init__(shell, settings)
        cells.offer("hpu_capture", self._capture, repeats=True)

    @cell_magic
    @options_of(commands.capture, leave_out=("function",))
    def hpu_capture(self, line: str, cell: str) -> None:
        """Capture a cell in an HPU Graph, which can be replayed without running Python code.

        The variables that the cell assigns become tensors of the graph, which each replay
        overwrites. The cell must not read the values of tensors (print, .item(), .cpu()), and
        shapes must not depend on them. Needs lazy mode. Examples::

            %%hpu_capture step --inputs x,y
            loss = loss_function(model(x), y)
            loss.backward()

            x = next_batch
            %hpu_replay step
        """
        cells.run(self.shell, "hpu_capture", line, cell)

    @line_magic
    @options_of(commands.replay)
    def hpu_replay(self, line: str) -> ReplayReport:
        """Replay a captured cell with the current values of its inputs.

        If you have reassigned an input, its new value is first copied to the graph's tensor; it
        must have the same shape, dtype and device as in the capture. Examples::

            %hpu_replay step
            %hpu_replay step -n 100
        """
        from hpu_magic.runtime.graphs import graphs

        options = self.parse(self.hpu_replay, line)
        graph = self.call(graphs.find, options.name)
        inputs = {name: self.namespace[name] for name in graph.inputs if name in self.namespace}
        report = self.call(graph.replay, options.runs, inputs)
        self.namespace.update(graph.outputs)
        return self.keep(options.output, report)

    @line_magic
    @options_of(commands.graphs)
    def hpu_graphs(self, line: str) -> GraphList:
        """List the captured cells, and the wrapped models with their input shapes.

        Examples::

            %hpu_graphs
            %hpu_graphs --delete step
        """
        return self.run(self.hpu_graphs, line)

    @line_magic
    @options_of(commands.wrap)
    def hpu_wrap(self, line: str) -> WrapReport:
        """Wrap a model in the vendor's wrapper, which replays one HPU Graph per input shape.

        The default is --train if the model is in training mode, and --no-train after model.eval().
        The generate method of a transformers model still works, but uses a static cache. Needs lazy
        mode. Examples::

            %hpu_wrap model --no-train
            %hpu_wrap model --train --max-graphs 4
            %hpu_wrap model --train --inputs batch
        """
        return self.run(self.hpu_wrap, line)

    def known_values(self, argument: str, word: str) -> list[str]:
        """Return the names of the captured graphs."""
        from hpu_magic.runtime.graphs import graphs

        if argument not in ("name", "delete"):
            return []
        return [graph.name for graph in graphs.listed().graphs]

    def _capture(self, line: str) -> Capture:
        from hpu_magic.runtime.execution.mode import in_lazy_mode
        from hpu_magic.runtime.graphs.capture import Capture

        options = self.parse(self.hpu_capture, line, cell=True)
        if options.name is None:
            raise UsageError("A graph needs a name: type %%hpu_capture step, for example.")
        self.check_name(options.name)
        inputs = split_list(options.inputs or "")
        return self.call(
            in_lazy_mode,
            lambda: Capture(
                options.name,
                inputs,
                self.namespace,
                options.warmup,
                keep=lambda graph: self.keep(options.output, graph),
            ),
            restart=options.restart,
        )
