"""Functions of the C library that kernels call: copying bytes, reading and writing files."""

from numba import types

memcpy = types.ExternalFunction("memcpy", types.int64(types.int64, types.int64, types.int64))
preadv = types.ExternalFunction("preadv", types.int64(types.int32, types.int64, types.int32, types.int64))
pwrite = types.ExternalFunction("pwrite", types.int64(types.int32, types.int64, types.int64, types.int64))
syscall = types.ExternalFunction(
    "syscall",
    types.int64(types.int64, types.int64, types.int64, types.int64, types.int64, types.int64),
)
