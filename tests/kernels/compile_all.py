"""Compile every kernel without a GPU: the compiler rejects code that the interpreter accepts.

    TRITON_INTERPRET=0 python tests/kernels/compile_all.py

Prints a line per kernel; an error ends it.
"""

import torch
from triton import compile as triton_compile
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from faircl.kernels import add_upsampled as resample
from faircl.kernels import batch_norm, cluster, column_sums, consistency, layer_norm, stem
from faircl.kernels import resample_windows as windows
from faircl.kernels import upsampled_logits as upsampled

FLOATS = "offset norm score grad_norm grad_score corner_sums weights_h weights_w norms2 max_norm2 sums loss_weights"
FLOATS += " mean scale weight bias grad_weight grad_bias lse colours pairs totals row_counts means sq_devs running_mean"
FLOATS += " running_var partial grad_sums"
LOW_PRECISION = "logits fine coarse prototypes features gradient y grad x grad_x out best residual grad_residual"
INTEGERS = "starts_h starts_w cells_h cells_w labels counts"
NUMBERS = "margin eps factor_x factor_y red green blue inverse_count momentum"
TYPES = dict.fromkeys(FLOATS.split(), "*fp32") | dict.fromkeys(INTEGERS.split(), "*i32")
TYPES |= dict.fromkeys(NUMBERS.split(), "fp32") | {"target": "*i64", "valid": "*u8"}
TYPES |= {"addresses": "*i64", "geometry": "*i64", "argmax": "*u8"}
UPSAMPLED = {
    "ignore": 65535,
    "background": 0,
    "has_offset": True,
    "has_group": True,
    "sigmoid": False,
    "whole_cell": True,
}
TILES = [
    {"tile_h": 2, "tile_w": 16, "c_outer": 4, "c_inner": 8},
    {"tile_h": 4, "tile_w": 4, "c_outer": 1, "c_inner": 32},
]


def cases():
    """Yield kernels with constants, dtype of maps, warps and stages."""
    yield windows._resample_bilinear, {"block": windows.BLOCK}, "u8", 4, 3
    for kind in ("u8", "i16"):
        yield windows._resample_nearest, {"block": windows.BLOCK}, kind, 4, 3
    for kind in ("bf16", "fp32"):
        for tile in TILES if kind == "bf16" else TILES[:1]:
            for fn in (upsampled._scores, upsampled._argmax, upsampled._backward):
                yield fn, UPSAMPLED | tile, kind, 1, 3
                yield fn, UPSAMPLED | tile | {"sigmoid": True, "whole_cell": False}, kind, 1, 3
        yield upsampled._sum_corners, {"block": 1024}, kind, 4, 3
        yield resample._add_upsampled, {"tile_w": 16, "tile_c": 128}, kind, 4, 3
        yield resample._add_upsampled_backward, {"tile_w": 16, "tile_c": 128}, kind, 4, 3
        yield layer_norm._normalise, {"tile_rows": 64, "tile_width": 64}, kind, 4, 3
        yield layer_norm._backward, {"tile_rows": 8, "tile_width": 512}, kind, 4, 3
        tile = {"tile_rows": 64, "tile_width": 64}
        yield column_sums._partial_sums, tile, kind, 4, 3
        yield batch_norm._partial_moments, tile, kind, 4, 3
        yield batch_norm._combine_moments, {"tile_rows": 1024, "tile_width": 8}, kind, 4, 3
        for fn in (batch_norm._normalise, batch_norm._partial_grad_sums, batch_norm._input_gradient):
            for has_residual, relu in ((False, True), (True, True), (False, False)):
                yield fn, tile | {"has_residual": has_residual, "relu": relu}, kind, 4, 3
        for fn in (stem._norm_relu_pool, stem._partial_grad_sums, stem._input_gradient):
            yield fn, stem._tile(64), kind, 4, 3
        sizes, tile = consistency.FORWARD, consistency.FORWARD._asdict()
        yield consistency._log_sum_exp, tile, kind, sizes.warps, 3
        yield consistency._forward, tile | {"radius": 1, "smooth": True, "num_colours": 3}, kind, sizes.warps, 3
        sizes, tile = consistency.BACKWARD, consistency.BACKWARD._asdict()
        for add in (False, True):
            yield consistency._backward, tile | {"radius": 1, "add": add}, kind, sizes.warps, 3
        dtype = torch.bfloat16 if kind == "bf16" else torch.float32
        for prototypes in (21, 151, 200, 300) if kind == "bf16" else (151,):
            sizes = cluster.forward_tiles(dtype, prototypes)
            yield cluster._forward, sizes, kind, sizes["num_warps"], sizes["num_stages"]
            sizes = cluster.backward_tiles(dtype, prototypes) | {"add": True, "scaled": True}
            yield cluster._backward, sizes, kind, sizes["num_warps"], sizes["num_stages"]


def main():
    target = GPUTarget("cuda", 90, 32)
    for fn, constants, kind, warps, stages in cases():
        names = fn.arg_names
        fixed = {name: value for name, value in constants.items() if name in names}
        types = dict.fromkeys(LOW_PRECISION.split(), f"*{kind}") | TYPES
        signature = {name: "constexpr" if name in fixed else types.get(name, "i32") for name in names}
        places = {(names.index(name),): value for name, value in fixed.items()}
        # As at run time: pointers, and the strides of channels_last maps of usual widths, are multiples of 16.
        even = [
            name
            for name in names
            if signature[name].startswith("*") or name in ("stride_b", "stride_p", "num_c", "width")
        ]
        attributes = {(names.index(name),): [["tt.divisibility", 16]] for name in even if name not in fixed}
        source = ASTSource(fn, signature, constexprs=places, attrs=attributes)
        made = triton_compile(source, target=target, options={"num_warps": warps, "num_stages": stages})
        print(fn.__module__, fn.__name__, kind, made.metadata.shared, flush=True)


if __name__ == "__main__":
    main()
