"""What a run leaves: its rows, its groups, the network of each client, and its folder."""

from __future__ import annotations

import copy
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from coterie.core.arrays import IntArray
from coterie.core.groups import Groups
from coterie.core.keep import KeptState
from coterie.core.own_model import ServesStored, split_own
from coterie.core.served import Served
from coterie.core.task import headline_of
from coterie.core.vectors import Layout, state_dict
from coterie.core.work import Train
from coterie.errors import ConfigError
from coterie.headline import ACCURACY, Headline
from coterie.python.folders import Unsaved, save_run
from coterie.python.notebook import result_html
from coterie.runs.check_folder import check_folder
from coterie.runs.kept import OWN_MODELS, kept_state
from coterie.runs.newcomers import with_places
from coterie.runs.prepare import Prepared, prepare
from coterie.runs.scores import ClientScores, last_scores
from coterie.runs.store import RunFolder

if TYPE_CHECKING:
    import pandas as pd

    from coterie.export.folder import Exported
    from coterie.export.predictions import Predicted


@dataclass(frozen=True)
class Result:
    """What a run leaves: a row per round, the last state, and the way back to modules.

    Args:
        rows: one dictionary per round, as in ``rounds.jsonl``.
        state: the groups after the last round.
        module: the network; its own parameters are the start.
        served: which model serves each client.
        kept: what clients kept of their models, which is a part of what serves them; nothing for
            most methods.
        own_models: what clients store for a model of their own; nothing for most methods.
        headline: what the run is measured by.
        folder: of the run; ``None`` for a run in memory.
        unsaved: what the folder of a run in memory would hold.
        evaluate: the table ``[evaluate]`` of the run.
    """

    rows: Sequence[dict[str, Any]]
    state: Groups
    module: nn.Module
    served: Served
    kept: KeptState
    own_models: KeptState
    headline: Headline = ACCURACY
    folder: Path | None = None
    unsaved: Unsaved | None = None
    evaluate: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def open(cls, folder: str | PathLike[str], *, trust: bool = False) -> Result:
        """The result of a run folder, of a run from Python or from the command line.

        Args:
            folder: of the run; it may be in progress, then it is the state of its newest checkpoint.
            trust: run the code that its configuration names as ``module:factory``, though it is not
                known to be the user's own.

        Raises:
            ConfigError: if there is no run, no round yet, or code that is not trusted.
            CheckpointError: if a file of the run is damaged.
        """
        run = RunFolder.open(Path(folder))
        check_folder(run)
        return cls.of(prepare(run.config(trust=trust), run.partition), run)

    @classmethod
    def of(cls, prepared: Prepared, run: RunFolder) -> Result:
        """The result of a run folder whose data and network are at hand."""
        checkpoint = run.checkpoints.latest()
        if checkpoint is None:
            what = "no model yet, got no checkpoint"
            raise ConfigError(f"{run.path}: {what}; expected a run that has saved one")
        # Of clients that joined after it was saved it has no places yet.
        clients = prepared.population.clients
        checkpoint = with_places(checkpoint, clients, prepared.config.algorithm.name)
        return cls(
            tuple(run.rows()[: checkpoint.round]),
            checkpoint.groups,
            prepared.module,
            prepared.algorithm.serve(checkpoint.groups),
            kept_state(checkpoint.extra),
            kept_state(checkpoint.extra, OWN_MODELS),
            headline_of(prepared.spec.task),
            run.path,
            evaluate=prepared.config.resolved().get("evaluate", {}),
        )

    # --- figures and models -----------------------------------------------------------------------

    @property
    def accuracy(self) -> list[float]:
        """Weighted accuracy per evaluated round, over the clients with a group in it, as
        fractions; of a classification. Other tasks have `scores`."""
        return [row["accuracy"] for row in self.rows if row.get("accuracy") is not None]

    @property
    def scores(self) -> list[float]:
        """The headline of the task per evaluated round, over the clients with a group in it."""
        name = self.headline.name
        return [row[name] for row in self.rows if row[name] is not None]

    @property
    def client_scores(self) -> list[ClientScores]:
        """How single clients are served after the last evaluated round: a record for each way in
        which they were scored, which says what it is of.

        Example:
            >>> import coterie as ct
            >>> data = ct.load("digits", partition={"kind": "iid", "clients": 6})
            >>> adapt = ct.Adaptation(epochs=1)
            >>> result = ct.run(ct.fedavg(), data=data, model="mclr", rounds=1, engine="serial",
            ...                 evaluate_adapt=adapt)
            >>> [one.way.name for one in result.client_scores]
            ['accuracy', 'adapted']
        """
        return last_scores(self.rows, {"evaluate": self.evaluate}, self.headline)

    @property
    def groups(self) -> IntArray:
        """int64 ``[N]``, the group of each client, -1 without one."""
        return self.state.member

    def vector_for(self, client: int) -> Tensor:
        """The flat parameters that serve a client.

        Raises:
            ConfigError: where a client fits the model to its samples before it predicts.
        """
        sent = self.served.vector(client)
        if self.served.personal is not None:
            return self._own_model(sent, self.served.personal, client)
        return self.kept.put_into(sent, client)

    def _own_model(self, sent: Tensor, personal: Train, client: int) -> Tensor:
        """What the rule of a method with models of the clients' own makes of the one it is sent."""
        rule = personal.own_model
        if not isinstance(rule, ServesStored):
            raise ConfigError(
                "client: fits the model to its samples when it is scored, got a method whose result "
                "has no such model; expected one that stores the models of its clients"
            )
        row = np.flatnonzero(self.own_models.ids == client)
        if not len(row):
            return sent
        stored = torch.from_numpy(self.own_models.vectors[row[0]])
        return rule.serve(sent, split_own(stored, rule.lengths(len(sent))))

    def model_for(self, client: int) -> nn.Module:
        """The network that serves a client, ready to predict."""
        # A copy, since `module` holds the first weights, from which another run may start.
        module = copy.deepcopy(self.module)
        values = state_dict(Layout.of(module), self.vector_for(client))
        # Frozen parameters and integer buffers are in no flat vector; they stay as they are
        # in the copy.
        module.load_state_dict(values, strict=False)
        return module.eval()

    def _repr_html_(self) -> str:
        """What a notebook shows of the result."""
        return result_html(self.rows, self.headline, len(self.groups), self.folder)

    def frame(self) -> pd.DataFrame:
        """The rows as a pandas frame, one column per measure (nested ones joined by a dot)."""
        # Imported here: it takes a while, and most runs make no frame.
        import pandas as pd

        return pd.json_normalize(list(self.rows))

    # --- what the command line makes of a run -------------------------------------------------------

    def save(self, folder: str | PathLike[str]) -> Path:
        """Write the run folder that ``coterie run`` would have left; all commands know it.

        Args:
            folder: a new one.

        Returns:
            The folder.

        Raises:
            ConfigError: for a folder that is in use, and for a run that no configuration can name,
                such as one of a module or of a method of the user's own.

        Example:
            >>> import tempfile
            >>> import coterie as ct
            >>> data = ct.load("digits", partition={"kind": "iid", "clients": 6})
            >>> result = ct.run(ct.fedavg(), data=data, model="mclr", rounds=2, engine="serial")
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     saved = result.save(f"{folder}/run")
            ...     ct.Result.open(saved).accuracy == result.accuracy
            True
        """
        target = Path(folder)
        if self.folder is not None:
            RunFolder.check_free(target)
            # Without what belongs to a process that writes the folder now.
            shutil.copytree(self.folder, target, ignore=shutil.ignore_patterns(".lock", ".*.tmp-*"))
            return target
        if self.unsaved is None:
            raise ConfigError("save: no run to save, got a result made by hand; expected a run's")
        return save_run(tuple(self.rows), self.unsaved, target).path

    def report(self, page: str | PathLike[str] | None = None) -> Path:
        """Write the HTML page of the run, as ``coterie report`` does.

        Args:
            page: the file; default ``report.html`` in the run's folder.

        Returns:
            The file.

        Raises:
            ConfigError: as `save` does, and without a file for a run in memory.

        Example:
            >>> import tempfile
            >>> import coterie as ct
            >>> data = ct.load("digits", partition={"kind": "iid", "clients": 6})
            >>> result = ct.run(ct.fedavg(), data=data, model="mclr", rounds=2, engine="serial")
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     page = result.report(f"{folder}/page.html")
            ...     "digits" in page.read_text(encoding="utf-8")
            True
        """
        # Imported here, as below: charts and exports take a second to import, runs need neither.
        from coterie.report.write import write_report

        self._check_target("page", page)
        with self._stored() as run:
            return write_report([run], None if page is None else Path(page))

    def export(
        self,
        folder: str | PathLike[str] | None = None,
        *,
        client: str | None = None,
        onnx: bool = False,
    ) -> Exported:
        """Write the models to use without Coterie, as ``coterie export`` does.

        Args:
            folder: a new one, or that of an earlier export; default ``export`` in the run's folder.
            client: name of a client whose model alone is written, with all that it keeps.
            onnx: write each model as ONNX, too.

        Raises:
            ConfigError: as `save` does, and without a folder for a run in memory.

        Example:
            >>> import tempfile
            >>> import coterie as ct
            >>> data = ct.load("digits", partition={"kind": "iid", "clients": 6})
            >>> result = ct.run(ct.fedavg(), data=data, model="mclr", rounds=2, engine="serial")
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     done = result.export(f"{folder}/models")
            ...     (done.folder / "load.py").is_file()
            True
        """
        from coterie.export.folder import export_run

        self._check_target("folder", folder)
        with self._stored() as run:
            out = folder if folder is None else Path(folder)
            return export_run(run, out, client=client, onnx=onnx)

    def predict(
        self, data: str | PathLike[str] | pd.DataFrame, out: str | PathLike[str] | None = None
    ) -> Predicted:
        """Predict new rows of a table, as ``coterie predict`` does.

        Args:
            data: a .parquet or .csv file with the columns of the run's own data, or a pandas frame.
            out: the CSV file to write; ``None``: none is written.

        Returns:
            The predictions, whose ``frame()`` is the table that is written, and how each client came
            to its model.

        Raises:
            ConfigError: as `save` does, and for a run whose task has no such predictions.
            DataError: if the rows cannot be read, or the run's data are no table.

        Example:
            >>> import tempfile
            >>> from pathlib import Path
            >>> import coterie as ct
            >>> rows = ["age,smokes,y,client"] + [f"{20 + i % 50},{i % 2},{i % 2},c{i % 4}" for i in range(80)]
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     table = Path(folder, "table.csv")
            ...     _ = table.write_text("\\n".join(rows))
            ...     data = ct.load("file", path=str(table), features="*", partition={"kind": "natural"})
            ...     result = ct.run(ct.fedavg(), data=data, model="mclr", rounds=2, engine="serial")
            ...     predicted = result.predict(table)
            >>> len(predicted.frame()), predicted.placed[0].by
            (80, 'known client')
        """
        from coterie.export.predictions import predict

        with self._stored() as run:
            return predict(run, data, None if out is None else Path(out))

    def _check_target(self, argument: str, target: object) -> None:
        if target is None and self.folder is None:
            raise ConfigError(f"{argument}: the run is in memory, got none; expected a path")

    @contextmanager
    def _stored(self) -> Iterator[Path]:
        """The folder of the run, of a run in memory for as long as it is needed."""
        if self.folder is not None:
            yield self.folder
            return
        with tempfile.TemporaryDirectory(prefix="coterie-") as place:
            yield self.save(Path(place) / "run")
