"""``%%hpu_graph``, ``%hpu_replay``, ``%hpu_graphs`` and ``%hpu_wrap``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.core.magic import cell_magic, line_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments

from hpu_magic.magics import cell as cells
from hpu_magic.magics import kinds
from hpu_magic.magics.command import CommandMagics
from hpu_magic.magics.settings import RESTART, Configured, HPUMagics

if TYPE_CHECKING:
    from hpu_magic.runtime.graphs.capture import Capture
    from hpu_magic.runtime.graphs.graphs import GraphList, ReplayReport
    from hpu_magic.runtime.graphs.wrapping import WrapReport


@magics_class
class GraphMagics(CommandMagics):
    """Captures cells and modules into HPU Graphs."""

    comma_separated = frozenset({"inputs"})

    def __init__(self, shell: Any, settings: HPUMagics) -> None:
        super().__init__(shell, settings)
        cells.offer("hpu_graph", self._capture, repeats=True)

    @cell_magic
    @magic_arguments()
    @argument("name", metavar="NAME", help="what to call the graph")
    @argument(
        "--inputs",
        default="",
        metavar="A,B",
        help="variables with tensors on the device; a replay copies their new values in",
    )
    @argument(
        "--warmup",
        type=int,
        default=Configured("graph_warmup"),
        metavar="N",
        help="runs before the capture, which set up what a first run makes (1 by default)",
    )
    @RESTART
    def hpu_graph(self, line: str, cell: str) -> None:
        """Capture a cell into an HPU Graph, to replay it without Python.

        The variables that the cell assigns are the graph's own tensors: each replay overwrites
        them. Reading values (print, .item(), .cpu()) and shapes that depend on values are
        refused. Needs lazy mode. Examples::

            %%hpu_graph step --inputs x,y
            loss = loss_function(model(x), y)
            loss.backward()

            x = next_batch
            %hpu_replay step
        """
        cells.run(self.shell, "hpu_graph", line, cell)

    @line_magic
    @magic_arguments()
    @argument("name", metavar="NAME", help="the graph")
    @argument(
        "-n",
        "--number",
        type=int,
        default=Configured("graph_replays"),
        metavar="N",
        help="number of replays",
    )
    def hpu_replay(self, line: str) -> ReplayReport:
        """Replay a captured cell on what its inputs are now.

        Inputs that were assigned anew are copied into the graph's own tensors first; they must
        have the captured shape, dtype and device. Examples::

            %hpu_replay step
            %hpu_replay step -n 100
        """
        from hpu_magic.runtime.graphs import graphs

        options = self.parse(self.hpu_replay, line)
        graph = self.call(graphs.find, options.name)
        inputs = {name: self.namespace[name] for name in graph.inputs if name in self.namespace}
        report = self.call(graph.replay, options.number, inputs)
        self.namespace.update(graph.outputs)
        return report

    @line_magic
    @magic_arguments()
    @argument("--drop", metavar="NAME", help="forget this graph and free its memory")
    def hpu_graphs(self, line: str) -> GraphList:
        """List the captured cells, and wrapped modules by the shapes that they were called with.

        Examples::

        %hpu_graphs
        %hpu_graphs --drop step
        """
        from hpu_magic.runtime.graphs import graphs

        options = self.parse(self.hpu_graphs, line)
        if options.drop is not None:
            self.call(graphs.drop, options.drop)
        return graphs.graphs()

    @line_magic
    @magic_arguments()
    @argument("model", metavar="MODEL", help="a module on the device; dotted names are allowed")
    @argument("--train", action="store_true", help="for training: forward and backward pass")
    @argument("--infer", action="store_true", help="for inference: forward pass without gradients")
    @argument("--sample", metavar="X", help="a tensor, or a tuple of tensors, to capture with now")
    @argument(
        "--max-graphs",
        type=int,
        default=Configured("wrap_max_graphs"),
        metavar="N",
        help="most graphs to keep, one for each shape",
    )
    @RESTART
    def hpu_wrap(self, line: str) -> WrapReport:
        """Let a module replay HPU Graphs, by the vendor's own wrappers.

        Without --train or --infer the module's own mode decides. A model of transformers keeps
        its generate, which then takes a static cache. Needs lazy mode. Examples::

            %hpu_wrap model --infer
            %hpu_wrap model --train --max-graphs 4
            %hpu_wrap model --train --sample batch
        """
        from hpu_magic.runtime.graphs import wrapping

        options = self.parse(self.hpu_wrap, line)
        if options.train and options.infer:
            raise UsageError("%hpu_wrap --train --infer says both: leave out one of them.")
        model = self.find(options.model)
        sample = self.find(options.sample) if options.sample is not None else None
        return self._in_lazy_mode(
            options.restart,
            wrapping.wrap,
            model,
            train=True if options.train else False if options.infer else None,
            sample=sample,
            max_graphs=options.max_graphs,
        )

    def known_values(self, argument: str, word: str) -> list[str]:
        """Return the names of the captured graphs."""
        from hpu_magic.runtime.graphs import graphs

        return [one.name for one in graphs.graphs().graphs] if argument in ("name", "drop") else []

    def fits(self, argument: str, position: int, value: Any) -> bool:
        """Tell whether a variable is what a capture or the wrappers take."""
        fitting = {"inputs": kinds.tensor, "model": kinds.module, "sample": kinds.of_tensors}
        return argument in fitting and fitting[argument](value)

    def _capture(self, line: str) -> Capture:
        from hpu_magic.runtime.graphs.capture import Capture

        options = self.parse(self.hpu_graph, line, cell=True)
        self.check_name(options.name)
        inputs = [name.strip() for name in options.inputs.split(",") if name.strip()]
        return self._in_lazy_mode(
            options.restart, Capture, options.name, inputs, self.namespace, options.warmup
        )

    def _in_lazy_mode(self, restart: bool, function: Any, *arguments: Any, **options: Any) -> Any:
        """Call `function`; where lazy mode is needed, restart into it if that is wanted."""
        from hpu_magic.runtime.execution import mode

        try:
            return self.call(function, *arguments, **options)
        except UsageError as error:
            if not (restart and isinstance(error.__context__, mode.LazyNeededError)):
                raise
        self.call(mode.mode, "lazy", restart_now=True)
        raise UsageError("The kernel restarts now in lazy mode: run your cells again after it.")
