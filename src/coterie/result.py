"""What a run leaves: its rows, its groups, the network of each client, and its folder."""

from __future__ import annotations

import copy
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from coterie.config.arguments import validated
from coterie.config.schema import to_plain
from coterie.core.arrays import IntArray
from coterie.core.groups import Groups
from coterie.core.keep import KeptState
from coterie.core.own_model import ServesStored, split_own
from coterie.core.served import Served
from coterie.core.target_scaling import TargetScaling, in_units, scaling_of
from coterie.core.task import headline_of
from coterie.core.vectors import Layout, state_dict
from coterie.core.work import Train
from coterie.errors import ConfigError
from coterie.headline import ACCURACY, Headline
from coterie.measures.scoring import Evaluate
from coterie.notebook import result_html
from coterie.runs.compose import Composed, compose
from coterie.runs.data import read_record
from coterie.runs.folder.store import RunFolder, check_folder
from coterie.runs.from_python import compose_in, objects_of
from coterie.runs.progress import OWN_MODELS, Progress, kept_state
from coterie.runs.resume import with_places
from coterie.runs.run import execute
from coterie.runs.scores import ClientScores, last_scores
from coterie.runs.stored import compose_recorded, needs_samples
from coterie.terminal import counted

if TYPE_CHECKING:
    from coterie.export.folder import Exported
    from coterie.export.predictions import Predicted
else:
    # Charts and exports take a second to import; `validated` reads annotations.
    Exported = Predicted = Any


@dataclass(frozen=True, eq=False, slots=True)
class Unsaved:
    """What a run in memory leaves that its folder would hold.

    Args:
        composed: the run.
        progress: after the last round.
        kept: what clients keep, by its names in a checkpoint.
    """

    composed: Composed
    progress: Progress
    kept: Mapping[str, Any]


@dataclass(frozen=True)
class Result:
    """The result of a run: a row per round, the final state, and the network.

    Args:
        rows: one dictionary per round, as in ``rounds.jsonl``.
        state: the groups after the last round.
        module: the network, with the initial parameters.
        served: which model serves each client.
        kept: the parts of models that clients keep, which belong to the models that serve them;
            empty for most methods.
        own_models: what clients store for their own models; empty for most methods.
        headline: the headline metric of the run.
        folder: the folder of the run; ``None`` for a run in memory.
        unsaved: what the folder of a run in memory would contain.
        evaluate: with which models clients were scored.
        objects: the Python objects that a run with a folder was given.
        scaling: how the targets of a regression are scaled; ``None``: they are not.

    Example:
        >>> import coterie as ct
        >>> data = ct.load("digits", partition={"kind": "iid", "clients": 6})
        >>> ct.run(ct.ifca(groups=2), data=data, model="mclr", rounds=1, engine="serial")
        Result(1 round, 6 clients, 2 models, 650 parameters, accuracy 0.833)
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
    evaluate: Evaluate = Evaluate()
    objects: Mapping[str, Any] = field(default_factory=dict, repr=False)
    scaling: TargetScaling | None = None

    @classmethod
    @validated
    def open(cls, folder: str | PathLike[str], *, trust: bool = False, **objects: Any) -> Result:
        """The result of a run folder, from a run in Python or on the command line.

        Args:
            folder: the folder of the run. If the run is in progress, its newest checkpoint is read.
            trust: run the code that its configuration names as ``module:factory``, even if it is
                not known to be your own.
            objects: the Python objects that the run was given, as for `coterie.resume`.

        Raises:
            ConfigError: if there is no run, no completed round, code that is not trusted, or an
                object that is missing.
            CheckpointError: if a file of the run is damaged.
        """
        run = replace(RunFolder.open(Path(folder)), objects=objects)
        check_folder(run)
        experiment = run.config(trust=trust)
        record = read_record(run.path)
        if record is None or needs_samples(experiment):
            return cls.of(compose(experiment, run.partition), run)
        return cls.of(compose_recorded(experiment, run.partition, record), run)

    @classmethod
    def of(cls, composed: Composed, run: RunFolder) -> Result:
        """The result of a run folder whose data and network have been loaded."""
        # Of clients that joined after it was saved it has no places yet.
        clients = composed.population.clients
        checkpoint = with_places(
            run.checkpoints.saved(), clients, composed.experiment.name("algorithm")
        )
        return cls(
            tuple(run.rows()[: checkpoint.round]),
            checkpoint.groups,
            composed.module,
            composed.algorithm.serve(checkpoint.groups),
            kept_state(checkpoint.extra),
            kept_state(checkpoint.extra, OWN_MODELS),
            headline_of(composed.spec.task),
            run.path,
            evaluate=composed.experiment.evaluate,
            objects=objects_of(composed.experiment),
            scaling=scaling_of(composed.spec.task),
        )

    def __repr__(self) -> str:
        numbers = {
            "round": len(self.rows),
            "client": len(self.groups),
            "model": len(self.state.models),
            "parameter": sum(values.numel() for values in self.module.parameters()),
        }
        parts = [counted(number, what) for what, number in numbers.items()]
        if self.scores:
            parts.append(f"{self.headline.name} {self.scores[-1]:.3g}")
        return f"Result({', '.join(parts)})"

    # --- figures and models -----------------------------------------------------------------------

    @property
    def accuracy(self) -> list[float]:
        """The accuracy of a classification in each evaluated round, as a fraction of the test
        samples of all clients with a group. For other tasks, use `scores`."""
        return [row["accuracy"] for row in self.rows if row.get("accuracy") is not None]

    @property
    def scores(self) -> list[float]:
        """The headline metric of the task in each evaluated round, over the clients with a group."""
        name = self.headline.name
        return [row[name] for row in self.rows if row[name] is not None]

    @property
    def client_scores(self) -> list[ClientScores]:
        """The scores of single clients after the last evaluated round: a record for each way in
        which they were scored.

        Example:
            >>> import coterie as ct
            >>> data = ct.load("digits", partition={"kind": "iid", "clients": 6})
            >>> adapt = ct.Adaptation(epochs=1)
            >>> result = ct.run(ct.fedavg(), data=data, model="mclr", rounds=1, engine="serial",
            ...                 evaluate={"adapt": adapt})
            >>> [one.way.name for one in result.client_scores]
            ['accuracy', 'adapted']
        """
        return last_scores(self.rows, {"evaluate": to_plain(self.evaluate)}, self.headline)

    @property
    def groups(self) -> IntArray:
        """int64 ``[N]``, the group of each client, -1 without one."""
        return self.state.member

    @validated
    def vector_for(self, client: int) -> Tensor:
        """The flat parameters that serve a client.

        Raises:
            ConfigError: for a number that no client has, and if clients fit the model to their
                samples before they predict.
        """
        if not 0 <= client < len(self.groups):
            allowed = f"0 to {len(self.groups) - 1}"
            raise ConfigError("out-of-range", "client", got=client, allowed=allowed)
        sent = self.served.vector(client)
        if self.served.personal is not None:
            return self._own_model(sent, self.served.personal, client)
        return self.kept.put_into(sent, client)

    def _own_model(self, sent: Tensor, personal: Train, client: int) -> Tensor:
        """What the rule of a method with models of the clients' own makes of the one it is sent."""
        rule = personal.own_model
        if not isinstance(rule, ServesStored):
            what = "this method fits a client's model only during scoring, so the result does not contain it"
            raise ConfigError("does-not-fit", "client", what)
        row = np.flatnonzero(self.own_models.ids == client)
        if not len(row):
            return sent
        stored = torch.from_numpy(self.own_models.vectors[row[0]])
        return rule.serve(sent, split_own(stored, rule.lengths(len(sent))))

    @validated
    def model_for(self, client: int) -> nn.Module:
        """The network that serves a client, ready to predict; its outputs are in the units of the
        targets."""
        # A copy, since `module` holds the first weights, from which another run may start.
        module = copy.deepcopy(self.module)
        values = state_dict(Layout.of(module), self.vector_for(client))
        # Frozen parameters and integer buffers are in no flat vector; they stay as they are
        # in the copy.
        module.load_state_dict(values, strict=False)
        return in_units(module.eval(), self.scaling)

    def _repr_html_(self) -> str:
        """What a notebook shows of the result."""
        return result_html(self.rows, self.headline, len(self.groups), self.folder)

    def frame(self) -> pd.DataFrame:
        """The rows as a pandas DataFrame with one column per measure (nested names are joined by a
        dot)."""
        return pd.json_normalize(list(self.rows))

    # --- what the command line makes of a run -------------------------------------------------------

    @validated
    def save(self, folder: str | PathLike[str]) -> Path:
        """Write the run folder that ``coterie run`` would have written; all commands can read it.

        Args:
            folder: a new one.

        Returns:
            The folder.

        Raises:
            ConfigError: if the folder is in use, or if a table of the run has a function, such as
                a sampler.

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
        return self._saved(Path(folder)).path

    def _saved(self, target: Path) -> RunFolder:
        if self.folder is not None:
            RunFolder.check_free(target)
            # Without what belongs to a process that writes the folder now.
            shutil.copytree(self.folder, target, ignore=shutil.ignore_patterns(".*"))
            return RunFolder(target, self.objects)
        if self.unsaved is None:
            what = "no run to save"
            got = "a result that was created by hand"
            raise ConfigError("missing", "save", what, found=got, allowed="the result of a run")
        return _save(tuple(self.rows), self.unsaved, target)

    @validated
    def report(self, page: str | PathLike[str] | None = None) -> Path:
        """Write an HTML page about the run, as ``coterie report`` does.

        Args:
            page: the file; default ``report.html`` in the run's folder.

        Returns:
            The file.

        Raises:
            ConfigError: in the same cases as `save`, and without ``page`` for a run in memory.

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
            return write_report([run.path], None if page is None else Path(page))

    @validated
    def export(
        self,
        folder: str | PathLike[str] | None = None,
        *,
        client: str | None = None,
        onnx: bool = False,
    ) -> Exported:
        """Write the models for use without Coterie, as ``coterie export`` does.

        Args:
            folder: a new folder, or that of an earlier export; default ``export`` in the run's
                folder.
            client: name of a client; only its model is written, with everything that it keeps.
            onnx: whether to also write each model as ONNX.

        Raises:
            ConfigError: in the same cases as `save`, and without ``folder`` for a run in memory.

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

    @validated
    def predict(
        self, data: str | PathLike[str] | pd.DataFrame, out: str | PathLike[str] | None = None
    ) -> Predicted:
        """Predict new rows of a table, as ``coterie predict`` does.

        Args:
            data: a .parquet or .csv file with the columns of the run's data, or a pandas DataFrame.
            out: the CSV file to write; ``None``: no file.

        Returns:
            The predictions, and how the model of each client was chosen. ``frame()`` returns the
            table that is written.

        Raises:
            ConfigError: in the same cases as `save`, and if the task does not support predictions.
            DataError: if the rows cannot be read, or the run's data are not a table.

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
            what = "the run is in memory and has no folder"
            raise ConfigError("not-found", argument, what, do="give a path")

    @contextmanager
    def _stored(self) -> Iterator[RunFolder]:
        """The folder of the run, of a run in memory for as long as it is needed."""
        if self.folder is not None:
            yield RunFolder(self.folder, self.objects)
            return
        with tempfile.TemporaryDirectory(prefix="coterie-") as place:
            yield self._saved(Path(place) / "run")


def _save(rows: tuple[dict[str, Any], ...], unsaved: Unsaved, out: Path) -> RunFolder:
    """Write the folder of a run that was carried out in memory, as if it had been there."""
    RunFolder.check_free(out)
    before = unsaved.composed
    composed, folder = compose_in(
        out.absolute(), before.experiment, before.data, noise=before.noise
    )
    checkpoint = unsaved.progress.checkpoint(composed.spec, unsaved.kept)
    with folder.locked():
        for row in rows:
            folder.append_round(row)
        folder.checkpoints.save(checkpoint, keep=1)
        # No round is left, so this writes what a run writes at its end.
        execute(composed, folder, checkpoint=checkpoint, resume=True)
    return replace(folder, objects=objects_of(composed.experiment))
