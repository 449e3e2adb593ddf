"""A model and its loss, computed at whatever weights are given. It keeps no weights of its own and knows no client."""

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from fedfdp.core import weights as w
from fedfdp.core.errors import DataError
from fedfdp.core.identity import examine
from fedfdp.core.records import Weights
from fedfdp.core.trees import Inputs, call, each
from fedfdp.models.copies import twin
from fedfdp.models.losses import LossFunction
from fedfdp.models.outputs import Unwrapped, unwrapped
from fedfdp.models.tasks import Task, task_for
from fedfdp.privacy.clipping import ClippedSum, clipped_sum, record_losses
from fedfdp.privacy.clipping.bounded import Coefficient
from fedfdp.privacy.clipping.job import Job, Together
from fedfdp.privacy.clipping.layers.convolution import as_channels_last
from fedfdp.privacy.clipping.modules import named_layers, trained
from fedfdp.privacy.clipping.persons import clipped_by_person
from fedfdp.privacy.clipping.state import State, changed_places, refusal, state_of
from fedfdp.privacy.clipping.undo import changes_undone
from fedfdp.privacy.noise.randomness import Key, Randomness


class Learner:
    """What clients compute with: gradients and losses of one module at given weights, on one device."""

    def __init__(
        self,
        model: nn.Module,
        loss_fn: LossFunction,
        *,
        device: str = "cpu",
        in_parts: bool = False,
        others: Mapping[str, "Learner"] | None = None,
        task: Task | None = None,
        output: str | None = None,
    ) -> None:
        """`in_parts`: weights may come without some parameters, or wider. `others`: of clients whose model differs.

        `task`: None: one class, or numbers. `output`: the entry of what the model gives that counts; None: all of it.
        """
        self.model = model.to(device)  # for training alone: its code may keep what it sees of records
        self._judging, self._released = twin(self.model), twin(self.model)  # the latter never sees a record
        self.task, self.output, self._loss = task, output, loss_fn
        self.loss_fn = loss_fn if output is None else Unwrapped(loss_fn, output)
        self.device = torch.device(device)
        modules = (self.model, self._judging, self._released)
        self._trained = {module: trained(named_layers(module)) for module in modules}
        self._parameters = self._trained[self.model]
        if not self._parameters:
            raise DataError(f"model {type(model).__name__} has no trainable parameter; unfreeze at least one layer")
        self._loaded: dict[nn.Module, Weights] = {}
        self._held: list[State] | None = None  # by the other two modules, before private training went on
        self.first = Weights.of(self._parameters) if in_parts else None  # what such weights are completed with
        self.others = dict(others or {})
        model_read, loss_read = examine(model, "model"), examine(self.loss_fn, "loss")
        self.unknown = model_read.unknown or loss_read.unknown  # the part of them that no digest can identify
        other = secrets.token_hex(16) if self.unknown else ""  # then this learner must not pass for another one
        self.identity = {"model": model_read.digest + other, "loss": loss_read.digest + other}
        self._convolves = any(isinstance(layer, nn.Conv2d) for layer in model.modules())
        self._together = Together(model)
        self._still = frozen_parts(model)
        self.model.eval()  # so that `_training` sets the modes at its first call
        still = {id(module) for part in self._still for module in part.modules()}
        self.stochastic = any(_draws(module) for module in model.modules() if id(module) not in still)

    def on(self, device: str) -> "Learner":
        """The same learner on another device, with the learners of clients whose model differs."""
        others = {name: other.on(device) for name, other in self.others.items()}
        parts, task, output = self.first is not None, self.task, self.output
        made = Learner(self.model, self._loss, device=device, in_parts=parts, others=others, task=task, output=output)
        made.identity, made.unknown = self.identity, self.unknown
        return made

    def _laid_out(self, x: Inputs) -> Inputs:
        """The records on this device, as the model is quickest with them: a linear one would only copy images back."""
        x = x.to(self.device)
        return each(x, as_channels_last) if self._convolves else x

    def initial(self) -> Weights:
        """A copy of the module's own weights: those that are trained."""
        return Weights.of(self._parameters)

    def of(self, client: str) -> "Learner":
        """The learner of this client's model: another one where it differs."""
        return self.others.get(client, self) if self.others else self

    def whole(self, weights: Weights) -> Weights:
        """The weights as the module takes them: of its shapes, and with its first ones where they lack a parameter."""
        return weights if self.first is None else w.assembled(self.first, weights)

    def load(self, weights: Weights) -> nn.Module:
        """The module that is trained, with these weights; they are shared, not copied."""
        return self._load(self.model, weights)

    def _load(self, module: nn.Module, weights: Weights) -> nn.Module:
        if self._loaded.get(module) is not weights:
            for name, parameter in self._trained[module].items():
                parameter.data = weights[name]
            self._loaded[module] = weights
        return module

    def _others(self) -> list[Job]:
        return [Job(other, self.loss_fn, self._trained[other]) for other in (self._judging, self._released)]

    def _private(self, weights: Weights) -> nn.Module:
        """The module for training under privacy. What the other two hold is noted: its passes must not change it."""
        if self._held is None:
            self._held = [state_of(other) for other in self._others()]
        return self._training(weights)

    def _check_others(self) -> None:
        """Raises if private training has left something where the other modules find it, as in a closure of a hook."""
        if self._held is None:
            return
        for other, state in zip(self._others(), self._held, strict=True):
            for place in changed_places(other, state):
                raise refusal(place)  # and again when it is asked again
        self._held = None

    def released(self, weights: Weights) -> nn.Module:
        """A module that has seen no record, with these weights, in evaluation mode: what may be handed out."""
        self._check_others()
        return self._load(self._released, self.whole(weights)).eval()

    def state_with(self, weights: Weights) -> dict[str, Tensor]:
        """All that the module with these weights consists of, frozen parts and buffers too, as copies."""
        state = self.released(weights).state_dict()
        return {name: tensor.clone(memory_format=torch.contiguous_format) for name, tensor in state.items()}

    def _training(self, weights: Weights) -> nn.Module:
        """The module with these weights in training mode; what is frozen in it stays in evaluation mode."""
        model = self.load(weights)
        if not model.training or any(part.training for part in self._still):
            model.train()
            for part in self._still:
                part.eval()
        return model

    def clipped(
        self, weights: Weights, x: Inputs, y: Tensor, coefficient: Coefficient, sizes: list[int] | None = None
    ) -> ClippedSum:
        """Σ c_j g_j with ‖c_j·g_j‖ ≤ C for every record. With `sizes`, the sum of each of several clients by itself."""
        model, x, y = self._private(weights), x.to(self.device), y.to(self.device)
        return clipped_sum(model, self.loss_fn, x, y, clip=coefficient.clip, coefficient=coefficient, sizes=sizes)

    def clipped_by_person(
        self, weights: Weights, x: Inputs, y: Tensor, coefficient: Coefficient, counts: Tensor
    ) -> ClippedSum:
        """The same with ‖c_p·Σ_j g_pj‖ ≤ C for every person p; records come person after person, `counts` of each."""
        self._private(weights)
        x, y, counts = x.to(self.device), y.to(self.device), counts.to(self.device)
        return clipped_by_person(
            self._together, self.loss_fn, x, y, counts, clip=coefficient.clip, coefficient=coefficient
        )

    def gradient(self, weights: Weights, x: Inputs, y: Tensor, coefficient: Coefficient) -> tuple[Weights, Tensor]:
        """The plain mean of c_j g_j, nothing clipped, and the losses. For runs without privacy."""
        model, x, y = self._training(weights), self._laid_out(x), y.to(self.device)
        with changes_undone(named_layers(model)):
            losses = self.loss_fn(call(model, x), y)
        with torch.no_grad():
            wanted = coefficient(losses.detach(), torch.zeros_like(losses))
        mean = torch.dot(losses, wanted) / max(len(losses), 1)
        gradients = torch.autograd.grad(mean, list(self._parameters.values()), allow_unused=True)
        named = zip(self._parameters.items(), gradients, strict=True)
        whole = {n: torch.zeros_like(p) if g is None else g for (n, p), g in named}
        return Weights.of(whole), losses.detach()

    def losses(self, weights: Weights, x: Inputs, y: Tensor) -> Tensor:
        """One loss per record, in training mode, all records in one pass. For what is not released under privacy."""
        with changes_undone(named_layers(self.model)), torch.no_grad():
            found = call(self._training(weights), self._laid_out(x))
            return self.loss_fn(found, y.to(self.device))

    def private_losses(self, weights: Weights, x: Inputs, y: Tensor) -> Tensor:
        """One loss per record that depends on no other record of the batch: what a released loss is made of."""
        model, x, y = self._private(weights), x.to(self.device), y.to(self.device)
        return record_losses(model, self.loss_fn, x, y)

    def judge(self, weights: Weights, x: Inputs, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """One loss per record, whether its output is right (NaN in regression), and the output; in evaluation mode."""
        with torch.inference_mode():
            whole, y = self._whole_outputs(weights, x), y.to(self.device)
            losses, output = self.loss_fn(whole, y), unwrapped(whole, self.output)
            task = self.task or task_for(None if y.is_floating_point() else output.shape[-1])
            return losses, task.right(output, y), output

    def outputs(self, weights: Weights, x: Inputs) -> Tensor:
        """What the model gives for each record, in evaluation mode."""
        return unwrapped(self._whole_outputs(weights, x), self.output)

    def _whole_outputs(self, weights: Weights, x: Inputs) -> Any:
        self._check_others()
        with changes_undone(named_layers(self._judging)), torch.inference_mode():
            return call(self._load(self._judging, weights).eval(), self._laid_out(x))

    @contextmanager
    def randomly(self, randomness: Randomness, key: Key) -> Iterator[None]:
        """Within it, whatever a forward pass draws comes from that key. Torch's global state is put back afterwards."""
        cuda = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices=cuda) if cuda else nullcontext():
            own = torch.default_generator  # torch.manual_seed does much more, slowly
            before = own.get_state()
            try:
                own.set_state(randomness.state(key))
                if cuda:
                    torch.cuda.manual_seed(int(torch.randint(2**62, ())))
                yield
            finally:
                own.set_state(before)


def frozen_parts(model: nn.Module) -> list[nn.Module]:
    """The outermost layers whose parameters are all frozen: they stay in evaluation mode."""
    flags = [parameter.requires_grad for parameter in model.parameters()]
    if flags and not any(flags):
        return [model]
    return [part for child in model.children() for part in frozen_parts(child)] if flags else []


def _draws(module: nn.Module) -> bool:
    """Whether a forward pass of this module draws random numbers."""
    return isinstance(module, nn.modules.dropout._DropoutNd) or bool(getattr(module, "dropout", 0))
