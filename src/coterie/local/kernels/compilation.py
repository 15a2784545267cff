"""How kernels are compiled, and how their machine code is kept for the next process.

Machine code is kept on disk where there is room for it, so that only the first process compiles.

Numba's compiler is changed in two ways for which it has no option.

**Vectors of 512 bits** on processors that have them. For many of Intel's processors LLVM prefers
vectors of 256 bits to those of AVX-512, since a few instructions on wide vectors lower the clock for
all others. Kernels are nearly all products of matrices, where twice as many products an instruction
gain more than the clock loses: they are 1.4 to 1.7 times as fast, if what they read begins a line of the
cache (`inner_loops.zeros`). Without such vectors the preference does nothing.

**Each kernel runs its own copies of the kernels that it calls.** Numba links a copy into each caller,
where it is optimised again, and so may add up in another order. Numba's copies all have one name, and a
process takes any one of them for all: now and then it found other last digits than another process.
So each copy has a name of its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.resources import files
from threading import RLock
from typing import Any, TypeVar

import numba
import numpy as np
from filelock import FileLock
from llvmlite.binding import Linkage  # type: ignore[import-untyped]
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.lowering import Lower
from numba.core.typed_passes import NativeLowering
from numpy.typing import NDArray

_COMPILED = "_ZN"  # how the names of functions begin that Numba compiled
_PREFERENCE = '"prefer-vector-width"="512"'


class _KernelLower(Lower):
    """From Numba's code to LLVM's: wide vectors are preferred, and copies have names of their own."""

    def __init__(self, context: Any, library: Any, fndesc: Any, *rest: Any, **options: Any) -> None:
        super().__init__(context, library, fndesc, *rest, **options)
        _name_copies(library, f"{fndesc.modname}.{fndesc.qualname}{fndesc.argtypes}")

    def setup_function(self, fndesc: Any) -> None:
        super().setup_function(fndesc)
        # Of the set that it is: `add` of its own knows only attributes without a value.
        set.add(self.function.attributes, _PREFERENCE)


@register_pass(mutates_CFG=True, analysis_only=False)
class _KernelLowering(NativeLowering):
    _name = "lowering_of_kernels"

    @property
    def lowering_class(self) -> type[_KernelLower]:
        return _KernelLower


def _name_copies(library: Any, caller: str) -> None:
    """Give the copies of other functions that are linked into a library names of their own."""
    optimize = library._optimize_final_module
    suffix = hashlib.sha256(caller.encode()).hexdigest()[:16]

    def own_names_first() -> None:
        for function in library._final_module.functions:
            # So Numba marks a copy, any of which may take the place of all others of its name. Those
            # that count references keep their names, by which LLVM knows which of them to leave out.
            copied = not function.is_declaration and function.linkage == Linkage.linkonce_odr
            if copied and function.name.startswith(_COMPILED):
                function.name = f"{function.name}.{suffix}"
        optimize()

    library._optimize_final_module = own_names_first


class KernelCompiler(CompilerBase):
    """Numba's compiler, with `_KernelLowering` in place of its own."""

    def define_pipelines(self) -> list[Any]:
        usual = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes = PassManager("kernels")
        for step, description in usual.passes:
            replaced = step is NativeLowering
            passes.add_pass(_KernelLowering if replaced else step, description)
        passes.finalize()
        return [passes]


F32 = NDArray[np.float32]
I64 = NDArray[np.int64]
Real = float | np.floating[Any]
_F = TypeVar("_F", bound=Callable[..., Any])
_one_thread = RLock()
# Seconds for another process to compile a kernel: that of convolutions takes ten.
LONGEST_WAIT = 120
ZERO = np.float32(0)
ONE = np.float32(1)


def _digest_of_kernels() -> str:
    """SHA-256 of all source files in this package."""
    digest = hashlib.sha256()
    sources = [file for file in files(__package__).iterdir() if file.name.endswith(".py")]
    for source in sorted(sources, key=lambda file: file.name):
        digest.update(source.read_bytes())
    return digest.hexdigest()


_KERNELS = _digest_of_kernels()


def _keep_machine_code(kernel: Any) -> None:
    """Read a kernel's machine code from disk, and write it there once it is compiled.

    Numba compiles again only when the kernel's own file has changed, and would run old code of
    functions in other files. So all files here are part of the version that Numba compares, before
    it reads the rest, which may name a class that has been renamed.

    Raises:
        RuntimeError: no folder can be written.
        AttributeError: this version of Numba stores its cache differently.
    """
    kernel.enable_caching()
    index = kernel._cache._cache_file
    index._version = f"{index._version}, {_KERNELS}"


def compiled(signature: Any = None, *, in_order: bool = False) -> Callable[[_F], _F]:
    """Compile for these types when a caller first needs it, or for each caller's types if none are
    given. Infinities and NaN are preserved.

    Sums may be reordered unless ``in_order``. A function that is inlined into its caller needs
    that: the compiler may reorder the two copies differently, and which one runs depends on what
    was compiled before.
    """
    # `reassoc` lets the compiler reorder a sum, which is what makes vectors of it; `contract` joins
    # a product and a sum; `nsz` forgets the sign of zero. Left out are `nnan` and `ninf`, by which
    # numbers are taken to be finite: a client that diverged would not be seen.
    options = {
        "fastmath": {"contract", "nsz"} if in_order else {"reassoc", "contract", "nsz"},
        # Without the interpreter's lock, so that scoring may take threads.
        "nogil": True,
        # A division by zero gives infinity and no exception, which would cost a test each time.
        "error_model": "numpy",
        "no_cfunc_wrapper": True,
        "pipeline_class": KernelCompiler,
    }

    def wrap(function: _F) -> _F:
        if numba.config.DISABLE_JIT:  # for a debugger
            return function
        try:
            kernel = numba.njit(**options)(function)
            _keep_machine_code(kernel)
        except (RuntimeError, OSError, AttributeError):  # nowhere to keep the machine code
            kernel = numba.njit(**options)(function)
        _compile_when_needed(kernel, signature)
        return kernel

    return wrap


def _compile_when_needed(kernel: Any, signature: Any) -> None:
    """Compile a kernel for these types alone, or for those of its calls, when it or its caller runs
    first."""
    compile_for = kernel.compile

    def compile_now(types: Any) -> Any:
        # Threads first and processes second, always: two that take turns never wait for each other.
        with _one_thread:
            if signature is None:
                with _others_waiting(kernel):
                    return compile_for(types)
            if not kernel.signatures:
                with _others_waiting(kernel):
                    compile_for(signature)
                kernel.disable_compile()
            [made] = kernel.overloads.values()
            return made.entry_point

    kernel.compile = compile_now


def _on_disk(kernel: Any) -> Any:
    """Where the machine code of a kernel is kept; ``None``: nowhere."""
    return getattr(getattr(kernel, "_cache", None), "_cache_file", None)


@contextmanager
def _others_waiting(kernel: Any) -> Iterator[None]:
    """Let one process at a time compile a kernel: on a new machine, the other processes of a sweep
    then read its code from disk."""
    kept = _on_disk(kernel)
    if kept is None:
        yield
        return
    lock = FileLock(f"{kept._index_path}.lock")
    # A process that was halted holds it, or the file system has no locks: it costs time alone.
    with suppress(OSError, NotImplementedError):
        lock.acquire(timeout=LONGEST_WAIT)
    try:
        yield
    finally:
        lock.release()


def compile_together(*kernels: Any) -> None:
    """Compile kernels with signatures now, or load them, if they are not there yet."""
    for kernel in kernels:
        if not numba.config.DISABLE_JIT:
            kernel.compile(None)


class OnDemand:
    """A kernel that Python calls, compiled when the first network of its kind is trained or scored:
    compiling all kernels for all kinds takes half a minute.

    Args:
        signature: maps the type of the record of layers to the kernel's type.
        first: likewise for kernels that it calls, compiled before it. `score` has none, so another
            process may compile `score` meanwhile.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        signature: Callable[[Any], Any],
        first: Callable[[Any], Sequence[Any]] = lambda layers: (),
    ) -> None:
        self._function = function
        self._signature = signature
        self._first = first
        self._made: dict[Any, Any] = {}
        self.kernels: dict[Any, Any] = {}

    def of(self, layers: Any) -> Any:
        """The machine code for networks of a kind."""
        if layers not in self.kernels:
            kernel = self._make(layers)
            if not numba.config.DISABLE_JIT:
                if self.is_missing(layers):
                    compile_together(*self._first(layers))
                kernel.compile(self._signature(layers))
            self.kernels[layers] = kernel
        return self.kernels[layers]

    def is_missing(self, layers: Any) -> bool:
        """Whether there is a folder for machine code, and none of this processor for networks of a
        kind in it."""
        kernel = self._make(layers)
        kept = _on_disk(kernel)
        if layers in self.kernels or kept is None:
            return False
        try:
            key = kernel._cache._index_key(self._signature(layers), kernel.targetctx.codegen())
            return key not in kept._load_index()
        except (OSError, AttributeError):  # another version of Numba may have it elsewhere
            return False

    def _make(self, layers: Any) -> Any:
        """The kernel, which may have to be compiled."""
        if layers not in self._made:
            self._made[layers] = compiled(self._signature(layers))(self._function)
        return self._made[layers]


def on_demand(
    signature: Callable[[Any], Any], first: Callable[[Any], Sequence[Any]] = lambda layers: ()
) -> Callable[[Callable[..., Any]], OnDemand]:
    """Compile later; the arguments are those of `OnDemand`."""
    return lambda function: OnDemand(function, signature, first)


def inlined(function: _F) -> _F:
    """Make a function part of each kernel that uses it, with the kernel's own rules for sums."""
    return numba.njit(inline="always")(function)
