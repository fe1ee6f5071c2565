"""Converts messages to arrays: of numpy if it is installed, otherwise memoryviews. The extension module calls these."""

from __future__ import annotations

import re
import signal
import struct
import sys
import threading
from collections.abc import Iterable
from functools import cache
from types import FrameType
from typing import Any

from thalweg._errors import made
from thalweg._native import Loan, Message, references

_BUFFER, _TIME = 1, 2
_NAME = re.compile(r"[<>][Mm]8(\[\d{0,9}(Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as)\])?")
_MOST_TYPES = 1000
#: Flag of the code of functions, whose variables are not in a dictionary.
_CO_OPTIMIZED = 1
_types: dict[tuple[int, str, int], Any] = {}


@cache
def installed_numpy() -> Any:
    """Returns numpy, or None if it cannot be imported. Delays SIGINT until after the import, because numpy turns an interrupt of the import
    of its extension modules into ImportError."""
    late: list[int] = []
    handler = signal.getsignal(signal.SIGINT)
    # Only the main thread runs handlers of signals and may set them. None is a handler that Python did not set.
    is_delayed = threading.current_thread() is threading.main_thread() and handler is not None
    if is_delayed:
        signal.signal(signal.SIGINT, lambda number, _: late.append(number))
    try:
        import numpy
    except ImportError:
        return None
    finally:
        if is_delayed:
            signal.signal(signal.SIGINT, handler)
        if late and callable(handler):
            # Not a second signal, because an event loop already has the first one.
            handler(signal.SIGINT, None)
        elif late:
            signal.raise_signal(signal.SIGINT)
    return numpy


def shown(message: Message) -> Any:
    """Returns an array over a received message. The message lives as long as any array over it."""
    numpy = installed_numpy()
    if numpy is None:
        return memoryview(message)
    kind = message.kind
    dtype = _types.get(kind)
    if dtype is None:
        dtype = _type(numpy, message)
        # Bounds the cache, because a peer may send any number of types.
        if len(_types) >= _MOST_TYPES:
            _types.clear()
        _types[kind] = dtype
    return numpy.ndarray(message.shape, dtype, message)


def _type(numpy: Any, message: Message) -> Any:
    encoding, name, size = message.kind
    try:
        if encoding == _TIME:
            if not _NAME.fullmatch(name):
                raise ValueError(name)
            dtype = numpy.dtype(name)
        else:
            dtype = _of_buffer(numpy, message)
    except (ValueError, TypeError, RuntimeError, SyntaxError) as error:
        raise made("Corrupt", None, f"an element of the unknown type {name!r}", 0, None) from error
    if dtype.hasobject or dtype.itemsize != size or dtype.subdtype is not None:
        raise made("Corrupt", None, f"an element of the type {name!r} with {size} bytes", 0, None)
    return dtype


def _of_buffer(numpy: Any, message: Message) -> Any:
    try:
        return numpy.asarray(message).dtype
    except RuntimeError:
        # numpy cannot read the format that it writes for a structure whose size is not a multiple of its alignment.
        unaligned = message.unaligned()
        if unaligned is None:
            raise
        return numpy.asarray(unaligned).dtype


def plain(obj: Any, error: BaseException) -> tuple[Any, str]:
    """Returns the integers of an array of dates or time spans, and the name of its type. For other objects, raises an exception
    with the reason. `error` is the exception that the object's buffer raised."""
    numpy = installed_numpy()
    if numpy is not None and isinstance(obj, numpy.ndarray | numpy.generic):
        if obj.dtype.kind in "mM":
            order = ">" if obj.dtype.str[0] == ">" else "<"
            return numpy.asarray(obj).view(f"{order}i8"), obj.dtype.str
        raise TypeError(
            f"an array of {obj.dtype} has no buffer: use fields and elements of fixed size, "
            "or send_object, which pickles it, if the receiver trusts this process"
        )
    if not isinstance(error, TypeError):
        # The object has a buffer, but refuses it: for example, a released memoryview.
        raise error
    raise TypeError(
        f"{type(obj).__name__} has no buffer: send arrays or bytes, "
        "or use send_object, which pickles it, if the receiver trusts this process"
    )


def described(dtype: Any) -> tuple[int, str, int]:
    """Returns the encoding, the format and the size of an element in bytes."""
    numpy = installed_numpy()
    if numpy is None:
        letter = "d" if dtype is None else dtype
        if not isinstance(letter, str) or not re.fullmatch("[@=<>]?[?bBhHiIlLqQefd]", letter):
            raise TypeError("without numpy, a dtype is a format of one character, as in struct")
        return _BUFFER, letter, struct.calcsize(letter)
    found = numpy.dtype(dtype)
    if found.kind in "mM":
        return _TIME, found.str, found.itemsize
    if found.hasobject or found.subdtype is not None:
        raise TypeError(f"{found}: only elements of a fixed size without objects can be lent")
    try:
        return _BUFFER, memoryview(numpy.empty((), found)).format, found.itemsize
    except ValueError as error:
        raise TypeError(f"{found}: {error}") from error


def lent(loan: Loan, dtype: Any) -> tuple[Any, Any]:
    """Returns an array over a loan, and the root: the array that is the base of all arrays over this memory."""
    numpy = installed_numpy()
    if numpy is None:
        return memoryview(loan), None
    # numpy makes an array over foreign memory the base of all arrays that are made from it. So the reference count of the base shows
    # whether other arrays exist.
    root = numpy.ndarray(loan.shape, dtype, memoryview(loan))
    return root[...], root


def _is_of(view: memoryview, loan: Loan) -> bool:
    try:
        return view.obj is loan
    except ValueError:
        # The view is released: an earlier call did that, and then found another view.
        return True


def released(array: Any, loan: Loan, root: Any, held: int, root_held: int) -> None:
    """Empties an array that `lent` returned, if no other array can refer to its memory. `held` and `root_held` are the reference counts
    of the array and of the root in the method that the program called."""
    if isinstance(array, memoryview):
        if not _is_of(array, loan):
            raise ValueError("this is not the array of the loan")
        array.release()
        return
    if root is None or array.base is not root:
        raise ValueError("this is not the array of the loan")
    # If no other array exists, only this array and the producer refer to the root. The argument of the call is one reference to this
    # array. A second one is either a variable, which sees an empty array afterwards, or an object such as a memoryview, which has the
    # address of the memory.
    if root_held > 2 or held > 2 or (held == 2 and not _is_named(array, sys._getframe().f_back)):
        raise BufferError(
            "other arrays, views or variables refer to the array of the loan: delete them first, or delete all and call commit() without an argument"
        )
    # Empties the array in place, so that remaining references do not see the memory of a message.
    array.__setstate__((1, (0,), array.dtype, False, b""))


def _lends_variables() -> bool:
    """Returns True if a call with a local variable as its argument adds no reference to the object, as since Python 3.14."""
    alone = object()
    return references(alone) == 1


_LENDS_VARIABLES = _lends_variables()


def _is_named(array: Any, caller: FrameType | None) -> bool:
    """Returns True if a variable of the calling code, or an attribute of an object in such a variable, holds a reference to the array in
    addition to the argument of the call."""
    if caller is None:
        return False
    variables = caller.f_locals
    if not caller.f_code.co_flags & _CO_OPTIMIZED:
        # A module or the body of a class.
        values = [variables.get(name) for name in caller.f_code.co_names]
        return _is_one_of(values, array) or _is_outside(values, array, caller)
    if _is_one_of(variables.values(), array):
        # A lent argument is the reference of the local variable, and another object holds the second one.
        is_named = not (_LENDS_VARIABLES and _is_local(array, caller))
    else:
        is_named = _is_outside(list(variables.values()), array, caller)
    if type(variables) is dict:
        # Until Python 3.12, the frame keeps this copy of the variables, which would keep all these objects alive. The references are
        # those of the frame, of this function and of the call. With another one, the program has the copy too, by a call of locals().
        if sys.getrefcount(variables) <= 3:
            variables.clear()
        else:
            _remove(array, variables)
    return is_named


def _is_one_of(values: Iterable[Any], array: Any) -> bool:
    # Not `array in values`, because == compares the elements of arrays. The loop is faster than `any`.
    for value in values:
        if value is array:
            return True
    return False


def _is_local(array: Any, caller: FrameType) -> bool:
    code, variables = caller.f_code, caller.f_locals
    # A variable that a nested function uses too is not lent.
    return any(variables.get(name) is array for name in code.co_varnames if name not in code.co_cellvars)


def _remove(array: Any, variables: dict[str, Any]) -> None:
    for name in [name for name, value in variables.items() if value is array]:
        del variables[name]


def _is_outside(values: list[Any], array: Any, caller: FrameType) -> bool:
    """Returns True if the array is a global variable that the code uses, or an attribute, which the code uses, of one of the values or of
    an object in a global variable."""
    used = caller.f_code.co_names
    outside = [caller.f_globals.get(name) for name in used]
    if _is_one_of(outside, array):
        return True
    owners = map(_attributes, (*values, *outside))
    return any(attributes.get(name) is array for attributes in owners if attributes for name in used)


def _attributes(owner: Any) -> dict[str, Any]:
    """Returns the attributes of an object, without a call of its own `__getattr__`. Objects such as numbers have none."""
    if not type(owner).__dictoffset__:
        return {}
    try:
        attributes = object.__getattribute__(owner, "__dict__")
    except AttributeError:
        return {}
    return attributes if type(attributes) is dict else {}
