"""What a function, an object or a model computes, as a digest: another for whatever may compute something else.

Code is told apart by its instructions, closures, defaults and constants, and by those of its globals that it names;
objects by their class and all that they hold; a model also by its buffers and frozen weights, not by what is trained.
Nothing of it is run. What holds state that cannot be read (an open file, a generator) has a digest that no other object
has, in this process or another.
"""

import dis
import functools
import hashlib
import logging
import os
import sys
import sysconfig
import threading
import types
import weakref
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

# Known by name alone: their code is the program's own surroundings, and a newer version of it is not another run.
NAMED = ("fedfdp", "numpy", "torch", "numba")
# Where modules of this package were when runs began to be identified: a move is not another run.
MOVED = {"fedfdp.models.learner": "fedfdp.learner", "fedfdp.models.losses": "fedfdp.learner"}
MOVED |= {f"fedfdp.core.{name}": f"fedfdp.{name}" for name in ("errors", "ranges", "records", "weights")}
_NUMBERS = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis), type(NotImplemented))
_SPELT = (torch.dtype, torch.device, torch.layout, torch.memory_format, np.dtype, np.ufunc, range, slice)
_CLOSED = (type(threading.Lock()), type(threading.RLock()))  # they hold nothing that is computed with
_DESCRIBED_ELSEWHERE = {"__dict__", "__weakref__", "__doc__", "__module__", "__annotations__", "__dataclass_fields__"}
_DESCRIBED_ELSEWHERE |= {"__dataclass_params__", "__abstractmethods__", "_abc_impl", "__firstlineno__"}
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_HEAP = 1 << 9  # a class made by a class statement, not in C


class Identity(NamedTuple):
    """The digest, and what of the thing could not be read, by its place; empty where all of it was."""

    digest: str
    unknown: str = ""


def identity(thing: object) -> str:
    """Equal for what surely computes the same; read anew at every call."""
    return examine(thing).digest


def remembered(thing: object) -> str:
    """The same, read once for each object: for a key that is needed in every pass. A later change goes unseen."""
    known = _known.get(id(thing))
    if known is None:
        known = _known[id(thing)] = identity(thing)
        _until_gone(thing, _known)
    return known


def examine(thing: object, name: str = "") -> Identity:
    """The identity of the thing; `name` is what its unreadable parts are named after."""
    reader, name = _Reader(thing), name or type(thing).__name__
    try:
        return Identity(reader.digest(thing, name).hex(), reader.unknown)
    except RecursionError:
        return Identity(_Reader(None)._unread(thing, name).hex(), f"{name} (nested too deeply)")


def digests(things: Mapping[str, object], known: Mapping[int, object]) -> tuple[dict[str, str], str]:
    """A digest for each of many things, and what of them could not be read; `known` tensors, by id, count by name.

    Made to be compared with a later one: what a cache holds counts too.
    """
    reader = _Reader(None, known, caches=True)
    return {name: reader.digest(thing, name).hex() for name, thing in things.items()}, reader.unknown


class _Reader:
    """One look at a thing and at all that it reaches. An object is read once; one within itself by how far up it is."""

    def __init__(self, thing: object, known: Mapping[int, object] | None = None, *, caches: bool = False) -> None:
        self.unknown, self._caches = "", caches
        trained = [p for p in thing.parameters() if p.requires_grad] if isinstance(thing, nn.Module) else []
        # Wherever they are kept, which of them it is counts, not what they hold.
        self._trained = known or {id(parameter): number for number, parameter in enumerate(trained)}
        self._read: dict[int, bytes] = {}
        self._within: dict[int, int] = {}
        self._kept: list[object] = []  # a number of an object that is gone could be another's

    def digest(self, value: Any, path: str) -> bytes:
        if type(value) in _NUMBERS:
            return _hash(type(value).__name__, repr(value))
        if isinstance(value, types.ModuleType):
            return self._library(value)
        key = id(value)
        if key in self._within:
            return _hash("within", len(self._within) - self._within[key])
        if key not in self._read:
            self._kept.append(value)
            self._within[key] = len(self._within)
            try:
                self._read[key] = self._describe(value, path)
            finally:
                del self._within[key]
        return self._read[key]

    def _describe(self, value: Any, path: str) -> bytes:
        for kinds, describe in _KINDS:
            if isinstance(value, kinds):
                return describe(self, value, path)
        if isinstance(value, type):
            return self._class(value, path)
        return self._object(value, path)

    def _all(self, kind: str, values: Iterable[Any], path: str) -> bytes:
        return _hash(kind, *[self.digest(value, f"{path}[{i}]") for i, value in enumerate(values)])

    def _mapping(self, value: Any, path: str) -> bytes:
        parts = [(self.digest(k, path), self.digest(v, f"{path}.{k!s:.40}")) for k, v in value.items()]
        return _hash("mapping", *[part for pair in parts for part in pair])

    def _dict(self, value: Any, path: str) -> bytes:
        return _hash(self._mapping(value, path), self._beside(value, dict, path))

    def _sequence(self, value: Any, path: str) -> bytes:
        plain = tuple if isinstance(value, tuple) else list
        return _hash(self._all(plain.__name__, value, path), self._beside(value, plain, path))

    def _set(self, value: Any, path: str) -> bytes:
        plain = frozenset if isinstance(value, frozenset) else set
        members = sorted(self.digest(member, path) for member in value)  # their order differs between processes
        return _hash("set", *members, self._beside(value, plain, path))

    def _beside(self, value: Any, plain: type, path: str) -> bytes:
        """What a container of a class of its own has besides its members."""
        if type(value) is plain:
            return b""
        return _hash(self.digest(type(value), path), self._mapping(getattr(value, "__dict__", {}), path))

    def _library(self, value: types.ModuleType) -> bytes:
        """A module: what of it code names is read there; of one's own that is held, the plain values too."""
        if surrounding(value.__name__) or installed(value.__name__):
            return _hash("module", _home(value.__name__))
        plain = {name: v for name, v in vars(value).items() if type(v) in _NUMBERS and not name.startswith("__")}
        return _hash("module", value.__name__, repr(sorted(plain.items())))

    def _tensor(self, value: Tensor, path: str) -> bytes:
        beside = {name: v for name, v in vars(value).items() if not name.startswith("_fedfdp")}
        if beside:
            return _hash(self._numbers(value, path), self._mapping(beside, path))
        return self._numbers(value, path)

    def _numbers(self, value: Tensor, path: str) -> bytes:
        if id(value) in self._trained:
            return _hash("trained", str(value.dtype), str(tuple(value.shape)), repr(self._named_as(value)))
        if value.layout != torch.strided or value.is_quantized or value.device.type == "meta":
            return self._unread(value, path)
        held = value.detach().cpu().contiguous()
        raw = held.reshape(-1).view(torch.uint8).numpy().data if held.numel() else b""
        return _hash("tensor", str(value.dtype), str(tuple(value.shape)), hashlib.sha256(raw).digest())

    def _named_as(self, value: Tensor) -> object:
        label = self._trained[id(value)]
        return label[0] if isinstance(label, tuple) else label

    def _cached(self, value: Any, path: str) -> bytes:
        held = str(value.cache_info()[1:]) if self._caches else ""
        return _hash("cached", self.digest(value.__wrapped__, path), held)

    def _array(self, value: Any, path: str) -> bytes:
        if isinstance(value, np.ma.MaskedArray):
            both = (np.asarray(value.data), np.ma.getmaskarray(value))
            return _hash("masked", *[self._array(part, path) for part in both])
        if value.dtype.hasobject:
            return self._all(f"array {value.shape}", value.ravel().tolist(), path)
        return _hash("array", value.dtype.str, str(value.shape), np.ascontiguousarray(value).tobytes())

    def _function(self, value: types.FunctionType, path: str) -> bytes:
        home, cells = _home(value.__globals__.get("__name__", "")), value.__closure__ or ()
        closed = zip(value.__code__.co_freevars, cells, strict=True)
        held = [self.digest(cell.cell_contents, f"{path}.{n}") if _filled(cell) else b"" for n, cell in closed]
        given = [self.digest(value.__defaults__, path), self.digest(value.__kwdefaults__, path)]
        code = b"" if surrounding(home) and "<" not in value.__qualname__ else self._code(value.__code__, path)
        if surrounding(home) or installed(home):
            return _hash("function", home, _version(home), value.__qualname__, code, *held, *given)
        names, globals_ = _lookups(value.__code__), value.__globals__
        found = {n: globals_[n] for n in sorted(names.globals) if n in globals_}
        package = str(globals_.get("__package__") or "")
        for n in sorted(names.imports):  # of a relative one only the name within the package is in the code
            found |= {f"import {m}": sys.modules[m] for m in (n, f"{package}.{n}") if m in sys.modules}
        reached = [self._named(n, v, names.attributes, f"{path}:{n}") for n, v in found.items()]
        own = {k: v for k, v in value.__dict__.items() if k != "__wrapped__"}
        return _hash("function", code, *held, *given, *reached, self._mapping(own, path))

    def _named(self, name: str, value: Any, attributes: frozenset[str], path: str) -> bytes:
        """A global that code names; of one's own modules, the attributes that it names too."""
        if not isinstance(value, types.ModuleType):
            return _hash(name, self.digest(value, path))
        home, held = _home(value.__name__), vars(value)
        if surrounding(home) or installed(home):
            return _hash(name, home, _version(home))
        inner = [n for n in sorted(attributes) if n in held and held[n] is not value]
        return _hash(name, home, *[self._named(n, held[n], attributes - {n}, f"{path}.{n}") for n in inner])

    def _code(self, code: types.CodeType, path: str) -> bytes:
        shape = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
        names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        consts = [self.digest(constant, path) for constant in code.co_consts]
        return _hash("code", code.co_code, code.co_exceptiontable, repr(shape), repr(names), *consts)

    def _class(self, value: type, path: str) -> bytes:
        home = _home(value.__module__)
        if not value.__flags__ & _HEAP or (surrounding(home) and _found_there(value)):
            return _hash("class", home, value.__qualname__)
        held = {name: v for name, v in vars(value).items() if name not in _DESCRIBED_ELSEWHERE}
        if installed(home):
            held = {name: v for name, v in held.items() if isinstance(v, types.FunctionType)}
            return _hash("class", home, _version(home), value.__qualname__, self._mapping(held, path))
        parents = [self.digest(base, path) for base in value.__bases__]
        return _hash("class", value.__qualname__, *parents, self._mapping(held, path))

    def _module(self, value: nn.Module, path: str) -> bytes:
        if isinstance(value, torch.jit.ScriptModule):
            weights = {**dict(value.named_buffers()), **dict(value.named_parameters())}
            return _hash("script", str(value.inlined_graph), self._mapping(weights, path))
        if "_orig_mod" in value._modules:  # what torch.compile made of it computes the same
            return self.digest(value._modules["_orig_mod"], path)
        # One that has hooks keeps them under running numbers: only the functions matter.
        hooks = [self._all(name, getattr(value, name, {}).values(), f"{path}.{name}") for name in _HOOKS]
        plain = {n: v for n, v in vars(value).items() if n not in _MODULES_OWN}
        held: dict[str, Any] = {**plain, **value._buffers, **value._parameters, **value._modules}
        return _hash("nn", self.digest(type(value), path), *hooks, self._mapping(held, path))

    def _object(self, value: Any, path: str) -> bytes:
        kind, compiled = type(value), getattr(value, "py_func", None)  # numba's, which names each by chance
        if isinstance(compiled, types.FunctionType):
            return _hash("compiled", self.digest(compiled, path))
        try:
            made_of = value.__reduce_ex__(2)  # how a copy would be made: of what C keeps, the only view there is
        except Exception:  # whatever an object of someone else's says against being copied
            return self._unread(value, path)
        if isinstance(made_of, str):
            return _hash("object", kind.__module__, made_of)
        parts = [part if i < 3 or part is None else list(part) for i, part in enumerate(made_of)]
        slots = {n: getattr(value, n) for base in kind.__mro__ for n in _slots(base) if hasattr(value, n)}
        held = {**getattr(value, "__dict__", {}), **slots}  # a copy may be made without some of it
        return _hash("object", self.digest(kind, path), self._mapping(held, path), self._all("made of", parts, path))

    def _unread(self, value: object, path: str) -> bytes:
        """A digest that this very object has, and nothing else."""
        self.unknown = self.unknown or f"{path} ({type(value).__name__})"
        if id(value) not in _tokens:
            _tokens[id(value)] = os.urandom(16)
            _until_gone(value, _tokens)
        return _hash("unread", _tokens[id(value)])

    def _partial(self, value: Any, path: str) -> bytes:
        parts = [value.func, value.args, value.keywords, value.__dict__]
        return self._all("partial", parts, path)

    def _builtin(self, value: Any, path: str) -> bytes:
        """A function or method of C's: by name, with the object that it is bound to."""
        owner = getattr(value, "__self__", None)
        bound = b"" if owner is None or isinstance(owner, types.ModuleType) else self.digest(owner, path)
        home = getattr(value, "__module__", None) or getattr(getattr(value, "__objclass__", None), "__qualname__", "")
        return _hash("builtin", str(home), value.__qualname__, bound)


Describe = Callable[[_Reader, Any, str], bytes]


def _attributes(*names: str) -> Describe:
    def describe(reader: _Reader, value: Any, path: str) -> bytes:
        return reader._all("attributes", [type(value).__name__, *[getattr(value, n) for n in names]], path)

    return describe


def _spelt(reader: _Reader, value: Any, path: str) -> bytes:
    return _hash(type(value).__name__, str(value))


# In this order: what is more than one of them is described as the first.
_KINDS: list[tuple[Any, Describe]] = [
    (nn.Module, _Reader._module),
    (Tensor, _Reader._tensor),
    ((np.ndarray, np.generic), lambda reader, value, path: reader._array(np.asanyarray(value), path)),
    (torch.Generator, lambda reader, value, path: reader.digest(value.get_state(), path)),
    (_SPELT, _spelt),
    (_CLOSED, lambda reader, value, path: _hash("closed", type(value).__name__)),
    ((torch._ops.OpOverload, torch._ops.OpOverloadPacket), _spelt),
    (torch.jit.ScriptFunction, lambda reader, value, path: _hash("script", str(value.inlined_graph))),
    (logging.Logger, lambda reader, value, path: _hash("logger", value.name)),
    (types.FunctionType, _Reader._function),
    (types.CodeType, _Reader._code),
    (types.MethodType, _attributes("__func__", "__self__")),
    (functools.partial, _Reader._partial),
    (functools._lru_cache_wrapper, _Reader._cached),
    ((staticmethod, classmethod), _attributes("__func__")),
    (property, _attributes("fget", "fset", "fdel")),
    ((types.MemberDescriptorType, types.GetSetDescriptorType), _attributes("__name__")),
    (
        (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.MethodWrapperType),
        _Reader._builtin,
    ),
    (types.ClassMethodDescriptorType, _Reader._builtin),
    (weakref.ref, lambda reader, value, path: reader._all("weak", [value()], path)),
    (types.MappingProxyType, _Reader._mapping),
    (dict, _Reader._dict),
    ((list, tuple), _Reader._sequence),
    ((set, frozenset), _Reader._set),
]

_MODULES_OWN = {*vars(nn.Module()), "_compiled_call_impl", "_flat_weight_refs"}
_known: dict[int, str] = {}
_tokens: dict[int, bytes] = {}
_immortal: list[object] = []


def _until_gone(thing: object, table: dict[int, Any]) -> None:
    """Forgets what is kept under an object's number once the object is gone, for the number may be given again."""
    try:
        weakref.finalize(thing, table.pop, id(thing), None).atexit = False
    except TypeError:
        _immortal.append(thing)


@cache
def surrounding(module: str) -> bool:
    """Whether it is part of Python, or one of the libraries that this program itself is made of."""
    top = _top(module)
    if top in NAMED or top == "builtins":
        return True
    found = getattr(sys.modules.get(top), "__file__", None)  # a file of one's own may be called as one of Python's is
    return top in sys.stdlib_module_names and (found is None or _below(found, "stdlib", "platstdlib"))


def installed(module: str) -> bool:
    """Whether it is a package that someone else wrote and that was installed, rather than a file of one's own."""
    return _installed(_top(module))


@cache
def _installed(top: str) -> bool:
    found = getattr(sys.modules.get(top), "__file__", None) or ""
    return _below(found, "purelib", "platlib")


def _below(file: str, *places: str) -> bool:
    return any(file.startswith(sysconfig.get_path(place) + os.sep) for place in places)


@cache
def _version(module: str) -> str:
    """Of a library; those that this program is made of go by name alone, and so do their numbers."""
    return "" if surrounding(module) else str(getattr(sys.modules.get(_top(module)), "__version__", ""))


def _home(module: object) -> str:
    return MOVED.get(str(module), str(module))


def _top(module: str) -> str:
    return module.partition(".")[0]


class _Lookups(NamedTuple):
    """The names that code, or a function within it, looks up."""

    globals: frozenset[str]
    attributes: frozenset[str]
    imports: frozenset[str]


@cache
def _lookups(code: types.CodeType) -> _Lookups:
    found: dict[str, set[str]] = {"GLOBAL": set(), "IMPORT_NAME": set(), "": set()}
    for step in dis.get_instructions(code):
        if isinstance(step.argval, str):
            kind = "GLOBAL" if step.opname in ("LOAD_GLOBAL", "LOAD_NAME") else step.opname
            found[kind if kind in found else ""].add(step.argval)
    inner = [_lookups(constant) for constant in code.co_consts if isinstance(constant, types.CodeType)]
    own = _Lookups(*[frozenset(found[kind]) for kind in ("GLOBAL", "", "IMPORT_NAME")])
    return _Lookups(*[frozenset().union(*names) for names in zip(own, *inner, strict=True)])


def _found_there(value: Any) -> bool:
    """Whether this very thing is what its module has under its name: a name alone then says what it is."""
    found: Any = sys.modules.get(value.__module__)
    for part in value.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is value


def _filled(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


def _slots(kind: type) -> list[str]:
    slots = vars(kind).get("__slots__", ())
    names = [slots] if isinstance(slots, str) else list(slots)
    return [name for name in names if name not in ("__dict__", "__weakref__")]


def _hash(*parts: str | bytes | int) -> bytes:
    sha = hashlib.sha256()
    for part in parts:
        raw = part if isinstance(part, bytes) else str(part).encode()
        sha.update(b"%d:" % len(raw) + raw)
    return sha.digest()[:16]
