"""Paths that users give: local ones, also as `file:` URIs; nothing else is supported."""

import os
import re
from urllib.parse import unquote

from adjoin.errors import OptionError

# One slash suffices: `pathlib` makes "hdfs:/nn/m" of "hdfs://nn/m".
_URI = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):/(?:/(?P<host>[^/]*))?")


def local_path(path: object, option: str = "path") -> str:
    """The path of a local file or directory, given plainly or as a `file:` URI; nothing is touched.

    Args:
        path: A string or `os.PathLike`: a plain path, or a URI such as "file:///warehouse/my%20products".
        option: What to call it in an error.

    Raises:
        OptionError: It is no path, or a URI of another scheme or another host.
    """
    if not isinstance(path, str | os.PathLike) or not isinstance(text := os.fspath(path), str):
        raise OptionError(f"{option}={path!r}: give a path as a string or as pathlib.Path")
    uri = _URI.match(text)
    if uri is not None:
        text = _path_of(text, uri, option)
    if not text or "\0" in text or not _is_encodable(text):
        raise OptionError(
            f"{option}={path!r}: give a path, which is not empty and has neither NUL nor half of a character"
        )
    return text


def _is_encodable(text: str) -> bool:
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return False
    return True


def _path_of(text: str, uri: re.Match[str], option: str) -> str:
    if uri["scheme"].lower() != "file" or (uri["host"] or "").lower() not in {"", "localhost"}:
        raise OptionError(
            f"{option}={text!r}: only local paths are supported, plain or as file:///..., which every host "
            "sees under the same name (a shared or mounted file system); object stores and HDFS are not: "
            "mount the store, or copy the files, and give the local path"
        )
    if "?" in text or "#" in text:
        raise OptionError(f"{option}={text!r}: in a file URI write ? as %3F and # as %23")
    path = text[uri.end() :].lstrip("/")
    return "/" + unquote(path, errors="surrogateescape")
