"""FP8 storage beside hs_connectors: the same codes and scales, and its reader reads what the sink wrote.

Run by the training stack's Python: `fp8.py FOLDER`.
"""

import sys
from pathlib import Path

import torch
from hs_connectors.fp8_utils import dequantize_fp8_tensor, quantize_tensor_to_fp8
from hs_connectors.transfer import FP8Transfer

from draftkiln.extract import copying, fp8, samples
from draftkiln.extract.ring import Ring, Rows
from draftkiln.extract.sink import Sink
from draftkiln.validate import head

ROWS, SLOTS, HIDDEN = 1500, 4, 64


def main() -> None:
    """Compare, write, read, compare."""
    folder = Path(sys.argv[1])
    folder.mkdir()
    torch.manual_seed(0)
    sizes = torch.tensor([0.5, 3.0, 10.0, 40.0])[None, :, None]
    states = (torch.randn(ROWS, SLOTS, HIDDEN) * sizes).to(torch.bfloat16)
    states[700] = 0
    theirs, their_scales = quantize_tensor_to_fp8(states)
    codes, scales = fp8.quantize(states)
    assert torch.equal(codes.view(torch.uint8), theirs.view(torch.uint8))
    assert torch.equal(scales, their_scales.ravel())
    assert torch.equal(fp8.restore(codes, scales), dequantize_fp8_tensor(theirs, their_scales))

    copy = copying.HostCopy(torch.device("cpu"), samples.FP8, (0, 0, 0))
    ring = Ring(copy.block(512, SLOTS, HIDDEN) for _ in range(2))
    sink = Sink(folder, SLOTS, HIDDEN, writers=2, dtype=samples.FP8)
    ids = torch.arange(ROWS)
    stored = copy.stored([states[:, slot] for slot in range(SLOTS)], ROWS)
    for begin in range(0, ROWS, 512):
        end = min(begin + 512, ROWS)
        block = ring.take(lambda: False)
        assert block is not None
        copy.copy(stored, block, begin, end)
        block.lend(1)
        view, rows = block.view[: (end - begin) * SLOTS * HIDDEN], block.scale_view[: (end - begin) * 4]
        sink.put(Rows(0, begin, view, ROWS, ids.numpy().tobytes() if begin == 0 else None, block, rows))
    (receipt,) = sink.close()
    assert sink.failure is None
    assert receipt.checksum == samples.checksum(folder / samples.name(0))

    read = FP8Transfer(folder).get_cached(0)
    assert read is not None
    assert torch.equal(read["token_ids"], ids)
    assert torch.equal(read["hidden_states"], fp8.restore(codes, scales))
    last = torch.from_numpy(head.last_slot(folder / samples.name(0)))
    assert torch.equal(last, codes[:, -1].float() * scales[:, None])
    loss = copy.lost
    print([f"{slot.error:.4f} {slot.min_cosine:.5f}" for slot in loss])
    assert 0.01 < loss[3].error < 0.04
    assert loss[3].min_cosine > 0.999


if __name__ == "__main__":
    main()
