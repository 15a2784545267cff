"""Numba's compiler, changed in two ways for which it has no option.

**Vectors of 512 bits** on processors that have them. For many of Intel's processors LLVM prefers
vectors of 256 bits to those of AVX-512, since a few instructions on wide vectors lower the clock for
all others. Kernels are nearly all products of matrices, where twice as many products an instruction
gain more than the clock loses: they are 1.4 to 1.7 times as fast, if what they read begins a line of the
cache (`room`). Without such vectors the preference does nothing.

**Each kernel runs its own copies of the kernels that it calls.** Numba links a copy into each caller,
where it is optimised again, and so may add up in another order. Numba's copies all have one name, and a
process takes any one of them for all: now and then it found other last digits than another process.
So each copy has a name of its own.
"""

from __future__ import annotations

import hashlib
from typing import Any

from llvmlite.binding import Linkage  # type: ignore[import-untyped]
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.lowering import Lower
from numba.core.typed_passes import NativeLowering

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
    """Give the copies of other functions that are linked into a library names of their own.

    Args:
        library: of Numba, before it is finalised.
        caller: the kernel and the types that it is compiled for.
    """
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
