"""C = A @ B by @STEP@, for tensors of torch or cupy: FP16, row-major, contiguous, on one GPU.

    product = Gemm(a, b, c)   # c = torch.empty(m, n, dtype=torch.float16, device="cuda")
    product()                 # as often as you like; product(stream.cuda_stream) on a stream
"""
import ctypes
import pathlib

here = pathlib.Path(__file__).resolve()
lib = ctypes.CDLL(str(here.with_name(f"lib{here.stem}.so")))
lib.gemm_error.restype = ctypes.c_char_p
lib.gemm_prepare.restype = ctypes.c_void_p
lib.gemm_prepare.argtypes = [ctypes.c_int64] * 3 + [ctypes.c_void_p] * 3
lib.gemm_run.argtypes = [ctypes.c_void_p] * 2
lib.gemm_release.argtypes = [ctypes.c_void_p]


class Gemm:
    plan = None

    def __init__(self, a, b, c):
        (m, k), n = a.shape, b.shape[1]
        seen = [x.__cuda_array_interface__ for x in (a, b, c)]
        for x, shape in zip(seen, ((m, k), (k, n), (m, n))):
            if x["typestr"] != "<f2" or tuple(x["shape"]) != shape or x.get("strides"):
                raise ValueError(f"needs a contiguous FP16 tensor of shape {shape}, not {x}")
        self.tensors = a, b, c  # live as long as the pointers are used
        self.plan = lib.gemm_prepare(m, n, k, *(x["data"][0] for x in seen))
        if not self.plan:
            raise ValueError(lib.gemm_error().decode())

    def __call__(self, stream=0):
        if lib.gemm_run(self.plan, stream):
            raise RuntimeError(lib.gemm_error().decode())

    def __del__(self):
        lib.gemm_release(self.plan)
