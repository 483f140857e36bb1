"""Compiles what the Triton kernels would run on an H100 or H200, without one, and prints what it takes as JSON.

The production functions are called with CPU tensors; a stand-in for the driver names the GPU to compile for, and every
launch ends where the compiler does. Run by test_triton.py.
"""

import json
import re
import subprocess
import tempfile

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import JITFunction

from harness.gpu import triton_evaluation, triton_rows

MIXTURES = {  # (F_s, V_s) of each block, facets of each component, rows padded to a multiple of, log_epsilon
    "softmax": ([(1, 10_000)], [1], 8, None),
    "mos-15": ([(15, 10_000)], [1] * 15, 8, None),
    "mos-15, epsilon": ([(15, 10_000)], [1] * 15, 8, 1e-8),
    "mfs 4, 1, 1": ([(1, 12_565), (1, 12_564), (1, 12_564), (1, 12_564), (2, 50_257)], [4, 1, 1], 8, None),
    "softmax, unpadded": ([(1, 50_257)], [1], 1, None),
}
PRODUCTS = [(10_500, 200, 10_000), (4096, 768, 50_257), (5, 33, 101)]  # R, E, V


class Driver:
    """What Triton asks a driver before it launches."""

    def get_current_device(self):
        return 0

    def get_current_stream(self, device):
        return 0

    def get_current_target(self):
        return GPUTarget("cuda", 90, 32)


def compiled(function, *args, **kwargs):
    """The kernels that a call would launch."""
    kernels, run = [], JITFunction.run

    def compile_only(self, *args, warmup, **kwargs):
        kernels.append(run(self, *args, warmup=True, **kwargs))

    JITFunction.run = compile_only
    try:
        function(*args, **kwargs)
    finally:
        JITFunction.run = run
    return kernels


def combinations_of_rows():
    """(name, configuration, kernels)."""
    for dtype in triton_rows.CONFIGURATIONS:
        for name, (specs, partitions, multiple, log_epsilon) in MIXTURES.items():
            blocks, facets, first = [], [], 0
            for num_facets, length in specs:
                stride = -(-length // multiple) * multiple
                blocks.append(torch.zeros(2, num_facets, stride, dtype=dtype)[..., :length])
                facets.append(range(first, first + num_facets))
                first += num_facets
            component = [k for k, count in enumerate(partitions) for _ in range(count)]
            target_nK = torch.zeros(2, len(partitions))
            log_prior_nK = torch.zeros_like(target_nK) if len(partitions) > 1 else None
            args = blocks, facets, component, target_nK, log_prior_nK, log_epsilon
            yield name, str(dtype), compiled(triton_rows.combine_rows_, *args)


def log_normalisers():
    """(name, configuration, kernels), each kernel once."""
    for precision in triton_evaluation.CONFIGURATIONS:
        kernels = set()
        for R, E, V in PRODUCTS:
            matrices = torch.zeros(R, E), torch.zeros(V, E), torch.zeros(V)
            kernels.update(compiled(triton_evaluation.fused_log_sum_exp, *matrices, precision=precision))
        yield "log-sum-exp", precision, kernels


def resources(kernel):
    """From the machine code: bytes and counts of instructions."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        usage, code = (
            subprocess.run(
                [triton.knobs.nvidia.cuobjdump.path, option, file.name], check=True, capture_output=True, text=True
            ).stdout
            for option in ("--dump-resource-usage", "--dump-sass")
        )
    return {
        "registers": int(re.search(r"REG:(\d+)", usage)[1]),
        "stack": int(re.search(r"STACK:(\d+)", usage)[1]),
        "spills": len(re.findall(r"\b(?:LDL|STL)\b", code)),  # loads from and stores to a thread's local memory
        "shared": kernel.metadata.shared,
        "threads": 32 * kernel.metadata.num_warps,
        "wide loads": len(re.findall(r"\b(?:LDG|LDGSTS)\.\S*128\b", code)),
        "tensor core instructions": len(re.findall(r"\bHGMMA\b", code)),
        "truncations to bfloat16": len(re.findall(r"cvt\.rz\S*bf16", kernel.asm["ptx"])),
    }


if __name__ == "__main__":
    triton.runtime.driver.set_active(Driver())
    found = [*combinations_of_rows(), *log_normalisers()]
    print(json.dumps([{"name": n, "configuration": c} | resources(kernel) for n, c, ks in found for kernel in ks]))
