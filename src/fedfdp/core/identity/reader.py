"""Reads a thing and all that it reaches, part by part, into one digest. Runs none of it and changes none of it."""

import collections
import functools
import logging
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedfdp.core.identity.hashing import hashed, of_scalar, token, until_gone
from fedfdp.core.identity.held import cached_by, is_filled, slots_of
from fedfdp.core.identity.numbers import of_array, of_tensor, of_ufunc
from fedfdp.core.identity.surroundings import found_at_home, home, installed, lookups, surrounding, version
from fedfdp.core.weights import Weights

_SCALARS = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis), type(NotImplemented))
_PRINTED = (torch.dtype, torch.device, torch.layout, torch.memory_format, np.dtype, range, slice)
_OPERATORS = (torch._ops.OpOverload, torch._ops.OpOverloadPacket)
_LOCKS = (type(threading.Lock()), type(threading.RLock()))  # they hold nothing that is computed with
_LEFT_OUT_OF_CLASSES = {"__dict__", "__weakref__", "__doc__", "__module__", "__annotations__", "__dataclass_fields__"}
_LEFT_OUT_OF_CLASSES |= {"__dataclass_params__", "__abstractmethods__", "_abc_impl", "__firstlineno__"}
_LEFT_OUT_OF_CLASSES |= {"__orig_bases__", "__parameters__"}  # type arguments: their effect is elsewhere in it
_LEFT_OUT_OF_MODULES = {*vars(nn.Module()), "_compiled_call_impl", "_flat_weight_refs"}
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_DATA: tuple[type, ...] = (list, dict, set, bytearray, collections.deque, Tensor, np.ndarray)
_KEEPING: tuple[type, ...] = (int, float, complex, *_DATA)
_KEEPING += (types.FunctionType, functools._lru_cache_wrapper)
_HEAP_TYPE = 1 << 9  # the flag of a class made by a class statement, not in C


class Reader:
    """One reading. Each object is read once; within itself it counts by how many levels up it is."""

    def __init__(self, thing: object, known: Mapping[int, object] | None = None, *, caches: bool = False) -> None:
        self.unknown, self._caches = "", caches
        trained = [p for p in thing.parameters() if p.requires_grad] if isinstance(thing, nn.Module) else []
        # A trained parameter counts by its position, wherever it is kept, not by its values.
        self.trained = known or {id(parameter): number for number, parameter in enumerate(trained)}
        self._read: dict[int, bytes] = {}
        self._within: dict[int, int] = {}
        self._packages: Reader | None = None  # of what installed packages keep
        self._kept: list[object] = []  # alive, so that no other object gets the id() of one that was read

    def digest(self, value: object, path: str) -> bytes:
        if type(value) in _SCALARS:
            return of_scalar(value)
        if isinstance(value, types.ModuleType):
            return self._library(value)
        key = id(value)
        if key in self._within:
            return hashed("within", len(self._within) - self._within[key])
        if key not in self._read:
            self._kept.append(value)
            self._within[key] = len(self._within)
            try:
                self._read[key] = self._describe(value, path)
            finally:
                del self._within[key]
        return self._read[key]

    def unread(self, value: object, path: str) -> bytes:
        """A digest that this very object has and nothing else, for what cannot be read."""
        self.unknown = self.unknown or f"{path} ({type(value).__name__})"
        return hashed("unread", token(value))

    def _describe(self, value: object, path: str) -> bytes:
        kind = type(value)
        describe = _described_by.get(id(kind))
        if describe is None or value.__class__ is not kind:
            describe = next((way for kinds, way in _KINDS if isinstance(value, kinds)), Reader._object)
            if value.__class__ is kind:  # else it says that it is of another class, and the next of its kind may not
                _described_by[id(kind)] = describe
                until_gone(kind, _described_by)
        return describe(self, value, path)

    # Containers -----------------------------------------------------------------------------------------------------

    def all(self, kind: str, values: Iterable[object], path: str) -> bytes:
        return hashed(kind, *[self.digest(value, f"{path}[{i}]") for i, value in enumerate(values)])

    def mapping(self, value: Mapping[Any, object], path: str) -> bytes:
        parts = [(self.digest(k, path), self.digest(v, f"{path}.{k!s:.40}")) for k, v in value.items()]
        return hashed("mapping", *[part for pair in parts for part in pair])

    def _dict(self, value: dict[object, object], path: str) -> bytes:
        return hashed(self.mapping(value, path), self._besides(value, dict, path))

    def _sequence(self, value: list[object] | tuple[object, ...], path: str) -> bytes:
        plain = tuple if isinstance(value, tuple) else list
        return hashed(self.all(plain.__name__, value, path), self._besides(value, plain, path))

    def _set(self, value: set[object] | frozenset[object], path: str) -> bytes:
        plain = frozenset if isinstance(value, frozenset) else set
        members = sorted(self.digest(member, path) for member in value)  # their order differs between processes
        return hashed("set", *members, self._besides(value, plain, path))

    def _besides(self, value: object, plain: type, path: str) -> bytes:
        """What a container of a subclass holds besides its members."""
        if type(value) is plain:
            return b""
        held = {**getattr(value, "__dict__", {}), **slots_of(value)}
        return hashed(self.digest(type(value), path), self.mapping(held, path))

    # Code -----------------------------------------------------------------------------------------------------------

    def _function(self, value: types.FunctionType, path: str) -> bytes:
        where, cells = home(value.__globals__.get("__name__", "")), value.__closure__ or ()
        closed = zip(value.__code__.co_freevars, cells, strict=True)
        held = [self.digest(cell.cell_contents, f"{path}.{n}") if is_filled(cell) else b"" for n, cell in closed]
        given = [self.digest(value.__defaults__, path), self.digest(value.__kwdefaults__, path)]
        code = b"" if surrounding(where) and "<" not in value.__qualname__ else self._code(value.__code__, path)
        if surrounding(where) or installed(where):
            kept = [self._kept_by(value, path)] if self._caches and not surrounding(where) else []
            return hashed("function", where, version(where), value.__qualname__, code, *held, *given, *kept)
        names, globals_ = lookups(value.__code__), value.__globals__
        found = {n: globals_[n] for n in sorted(names.globals) if n in globals_}
        package = str(globals_.get("__package__") or "")
        for n in sorted(names.imports):  # code holds only the name within the package where the import is relative
            found |= {f"import {m}": sys.modules[m] for m in (n, f"{package}.{n}") if m in sys.modules}
        reached = [self._named(n, v, names.attributes, f"{path}:{n}") for n, v in found.items()]
        own = {k: v for k, v in value.__dict__.items() if k != "__wrapped__" or not callable(v)}
        return hashed("function", code, *held, *given, *reached, self.mapping(own, path))

    def _kept_by(self, value: types.FunctionType, path: str) -> bytes:
        """What the code of an installed package may keep from one call to the next: data that it reaches by name."""
        names, found = lookups(value.__code__).globals, value.__globals__
        return self._aside({n: found[n] for n in sorted(names) if n in found}, path)

    def _aside(self, held: Mapping[str, object], path: str) -> bytes:
        """Data of a package, read by another reader: what cannot be read there is passed over, and is no refusal."""
        if self._packages is None:
            self._packages = Reader(None, self.trained, caches=True)
            self._packages._packages = self._packages
        return self._packages.mapping({n: v for n, v in held.items() if isinstance(v, _KEEPING)}, path)

    def _named(self, name: str, value: object, attributes: frozenset[str], path: str) -> bytes:
        """A global that code names; of a module of the user's, also the attributes that the code names."""
        if not isinstance(value, types.ModuleType):
            return hashed(name, self.digest(value, path))
        where, held = home(value.__name__), vars(value)
        if surrounding(where) or installed(where):
            return hashed(name, where, version(where))
        inner = [n for n in sorted(attributes) if n in held and held[n] is not value]
        return hashed(name, where, *[self._named(n, held[n], attributes - {n}, f"{path}.{n}") for n in inner])

    def _library(self, value: types.ModuleType) -> bytes:
        """A module that is held; one of the user's counts with its plain values and its data."""
        if surrounding(value.__name__) or installed(value.__name__):
            return hashed("module", home(value.__name__))
        plain = {name: v for name, v in vars(value).items() if type(v) in _SCALARS and not name.startswith("__")}
        data = {name: v for name, v in vars(value).items() if isinstance(v, _DATA) and not name.startswith("__")}
        held = []
        if data and id(value) not in self._within:
            self._within[id(value)] = len(self._within)
            held = [self.mapping(data, value.__name__)]
            del self._within[id(value)]
        return hashed("module", value.__name__, repr(sorted(plain.items())), *held)

    def _code(self, code: types.CodeType, path: str) -> bytes:
        known = _codes.get(id(code))
        if known is None:  # code and its constants never change
            known = _codes[id(code)] = self._described_code(code, path)
            until_gone(code, _codes)
        return known

    def _described_code(self, code: types.CodeType, path: str) -> bytes:
        shape = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
        names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        consts = [self.digest(constant, path) for constant in code.co_consts]
        return hashed("code", code.co_code, code.co_exceptiontable, repr(shape), repr(names), *consts)

    def _cached(self, value: "functools._lru_cache_wrapper[object]", path: str) -> bytes:
        function = self.digest(value.__wrapped__, path)
        if not self._caches:
            return hashed("cached", function, "")
        return hashed("cached", function, str(value.cache_info()[1:]), self.all("kept", cached_by(value), path))

    def _partial(self, value: "functools.partial[object]", path: str) -> bytes:
        return self.all("partial", [value.func, value.args, value.keywords, value.__dict__], path)

    def _builtin(self, value: types.BuiltinFunctionType, path: str) -> bytes:
        """A function or method that is written in C: by name, with the object that it is bound to."""
        owner = getattr(value, "__self__", None)
        bound = b"" if owner is None or isinstance(owner, types.ModuleType) else self.digest(owner, path)
        where = getattr(value, "__module__", None) or getattr(getattr(value, "__objclass__", None), "__qualname__", "")
        return hashed("builtin", str(where), value.__qualname__, bound)

    # Classes and objects --------------------------------------------------------------------------------------------

    def _class(self, value: type, path: str) -> bytes:
        if value is Weights:  # what the name stood for when runs began to be identified
            return self.digest(dict[str, Tensor], path)
        where = home(value.__module__)
        if not value.__flags__ & _HEAP_TYPE or (surrounding(where) and found_at_home(value)):
            named = hashed("class", where, value.__qualname__)
            put = {n: v for n, v in vars(value).items() if isinstance(v, _DATA)} if self._caches else {}
            return hashed(named, self._aside(put, path)) if put else named
        held = {name: v for name, v in vars(value).items() if name not in _LEFT_OUT_OF_CLASSES}
        if installed(where):
            if self._packages is self:
                return hashed("class", where, value.__qualname__)
            functions = {name: v for name, v in held.items() if isinstance(v, types.FunctionType)}
            kept = [self._aside(held, path)] if self._caches else []
            return hashed("class", where, version(where), value.__qualname__, self.mapping(functions, path), *kept)
        parents = [self.digest(base, path) for base in value.__bases__]
        return hashed("class", value.__qualname__, *parents, self.mapping(held, path))

    def _module(self, value: nn.Module, path: str) -> bytes:
        if isinstance(value, torch.jit.ScriptModule):
            weights = {**dict(value.named_buffers()), **dict(value.named_parameters())}
            return hashed("script", str(value.inlined_graph), self.mapping(weights, path))
        if "_orig_mod" in value._modules:  # what torch.compile made of a module computes the same as the module
            return self.digest(value._modules["_orig_mod"], path)
        # Hooks are kept under running numbers, on which nothing depends: only the functions count.
        hooks = [self.all(name, getattr(value, name, {}).values(), f"{path}.{name}") for name in _HOOKS]
        plain = {n: v for n, v in {**vars(value), **slots_of(value)}.items() if n not in _LEFT_OUT_OF_MODULES}
        held: dict[str, object] = {**plain, **value._buffers, **value._parameters, **value._modules}
        # As a part of a model it is set to training with it; one that a model only holds is as it was left.
        mode = [str(value.training)] if self._caches else []
        return hashed("nn", self.digest(type(value), path), *hooks, self.mapping(held, path), *mode)

    def _object(self, value: object, path: str) -> bytes:
        kind, compiled = type(value), getattr(value, "py_func", None)
        if isinstance(compiled, types.FunctionType):  # numba's, which has a random name
            return hashed("compiled", self.digest(compiled, path))
        try:
            made_of = value.__reduce_ex__(2)  # how a copy would be made: the only view of what is held in C
        except Exception:  # an object may refuse to be copied with any error
            return self.unread(value, path)
        if isinstance(made_of, str):
            return hashed("object", kind.__module__, made_of)
        parts = [part if i < 3 or part is None else list(part) for i, part in enumerate(made_of)]
        held = {**getattr(value, "__dict__", {}), **slots_of(value)}  # a copy may be made without some of these
        return hashed("object", self.digest(kind, path), self.mapping(held, path), self.all("made of", parts, path))


Describe = Callable[[Reader, Any, str], bytes]
_described_by: dict[int, Describe] = {}  # by the id of a class
_codes: dict[int, bytes] = {}  # digests by the id of the code


def _attributes(*names: str) -> Describe:
    def describe(reader: Reader, value: object, path: str) -> bytes:
        return reader.all("attributes", [type(value).__name__, *[getattr(value, n) for n in names]], path)

    return describe


# The first kind that matches is used.
_KINDS: list[tuple[Any, Describe]] = [
    (nn.Module, Reader._module),
    (Tensor, of_tensor),
    ((np.ndarray, np.generic), of_array),
    (np.ufunc, of_ufunc),
    (torch.Generator, lambda reader, value, path: reader.digest(value.get_state(), path)),
    ((*_PRINTED, *_OPERATORS), lambda reader, value, path: hashed(type(value).__name__, str(value))),
    (_LOCKS, lambda reader, value, path: hashed("closed", type(value).__name__)),
    (torch.jit.ScriptFunction, lambda reader, value, path: hashed("script", str(value.inlined_graph))),
    (logging.Logger, lambda reader, value, path: hashed("logger", value.name)),
    (types.FunctionType, Reader._function),
    (types.CodeType, Reader._code),
    (types.MethodType, _attributes("__func__", "__self__")),
    (functools.partial, Reader._partial),
    (functools._lru_cache_wrapper, Reader._cached),
    ((staticmethod, classmethod), _attributes("__func__")),
    (property, _attributes("fget", "fset", "fdel")),
    ((types.MemberDescriptorType, types.GetSetDescriptorType), _attributes("__name__")),
    ((types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType), Reader._builtin),
    ((types.MethodWrapperType, types.ClassMethodDescriptorType), Reader._builtin),
    (weakref.ref, lambda reader, value, path: reader.all("weak", [value()], path)),
    (types.MappingProxyType, Reader.mapping),
    (dict, Reader._dict),
    ((list, tuple), Reader._sequence),
    ((set, frozenset), Reader._set),
    (type, Reader._class),
]
