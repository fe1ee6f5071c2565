"""Runs CPython's tests of shutil. `thalweg.copy` replaces shutil's functions for copies.

shutil handles cases for which thalweg.copy has no option: an `ignore` function, a `copy_function`, and links that are followed below the
source.
"""

import errno
import os
import shutil

import cpython_told
import test.test_shutil as theirs
import thalweg

_copytree = shutil.copytree


def _same(source: object, destination: object) -> bool:
    return os.path.exists(destination) and os.path.samefile(source, destination)


def _copy(source: object, destination: object, archive: bool, follow: bool) -> object:
    os.lstat(source) if not follow else os.stat(source)
    if _same(source, destination) and (follow or not os.path.islink(source)):
        raise shutil.SameFileError(f"{source!r} and {destination!r} are the same file")
    if os.path.isdir(destination) or os.path.isdir(source):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(destination))
    try:
        thalweg.copy(os.path.realpath(source) if follow else source, destination, archive=archive)
    except thalweg.Error as error:
        raise OSError(error.errno or errno.EIO, str(error), os.fspath(destination)) from error
    return destination


def _inside(source: object, destination: object) -> object:
    return os.path.join(destination, os.path.basename(source)) if os.path.isdir(destination) else destination


def copyfile(source, destination, *, follow_symlinks=True):
    return _copy(source, destination, archive=False, follow=follow_symlinks)


def copy(source, destination, *, follow_symlinks=True):
    return _copy(source, _inside(source, destination), archive=False, follow=follow_symlinks)


def copy2(source, destination, *, follow_symlinks=True):
    return _copy(source, _inside(source, destination), archive=True, follow=follow_symlinks)


def _has_links(source: object) -> bool:
    return any(os.path.islink(os.path.join(at, name)) for at, below, files in os.walk(source) for name in below + files)


def copytree(source, destination, symlinks=False, ignore=None, copy_function=copy2, ignore_dangling_symlinks=False, dirs_exist_ok=False):
    is_ours = ignore is None and copy_function in (copy2, shutil.copy2) and (symlinks or not _has_links(source))
    if not is_ours or os.path.islink(source):
        return _copytree(source, destination, symlinks, ignore, copy_function, ignore_dangling_symlinks, dirs_exist_ok)
    os.listdir(source)
    if not dirs_exist_ok and os.path.lexists(destination):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), os.fspath(destination))
    os.makedirs(os.path.dirname(os.path.abspath(destination)), exist_ok=True)
    try:
        thalweg.copy(source, destination)
    except thalweg.Error as error:
        raise shutil.Error([(source, destination, str(error))]) from error
    return destination


if __name__ == "__main__":
    for replacement in (copyfile, copy, copy2, copytree):
        setattr(shutil, replacement.__name__, replacement)
    cpython_told.run([theirs.TestCopyTree, theirs.TestCopy, theirs.TestMove])
