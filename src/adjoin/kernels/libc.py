"""Calls into the C library that kernels need: copy bytes, read files."""

from numba import types

memcpy = types.ExternalFunction("memcpy", types.int64(types.int64, types.int64, types.int64))
preadv = types.ExternalFunction("preadv", types.int64(types.int32, types.int64, types.int32, types.int64))
syscall = types.ExternalFunction(
    "syscall",
    types.int64(types.int64, types.int64, types.int64, types.int64, types.int64, types.int64),
)
