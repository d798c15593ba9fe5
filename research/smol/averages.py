"""The average of two adapters of one base model, as an adapter of the same rank.

    python -m research.smol.averages FIRST SECOND --share 0.5 --output FOLDER

Averages the changes of the weights that two adapters make, as WiSE-FT (Wortsman et al. 2022) averages the
weights before and after fine-tuning, and keeps the largest singular values of the average, as many as the
adapters' rank. `--share` is the second adapter's share. Note and settings are those of the second.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

WEIGHTS = "adapter_model.safetensors"
_IN, _OUT = ".lora_A.", ".lora_B."


def averaged(
    first: dict[str, torch.Tensor], second: dict[str, torch.Tensor], share: float
) -> tuple[dict[str, torch.Tensor], float]:
    """Return the averaged weights, and the share of the averages' squared norm that the rank keeps."""
    import torch

    if {name: one.shape for name, one in first.items()} != {name: one.shape for name, one in second.items()}:
        raise ValueError("the adapters differ in their modules or in their rank")
    found: dict[str, torch.Tensor] = {}
    kept = total = 0.0
    for name in first:
        if _IN not in name:
            continue
        other = name.replace(_IN, _OUT)
        rank = first[name].shape[0]
        # The average is the product of two matrices of twice the rank, so that small factors suffice.
        left = torch.cat([(1 - share) * first[other].float(), share * second[other].float()], dim=1)
        right = torch.cat([first[name].float(), second[name].float()])
        q, r = torch.linalg.qr(left)
        p, s = torch.linalg.qr(right.T)
        u, values, v = torch.linalg.svd(r @ s.T)
        root = values[:rank].sqrt()
        found[other] = (q @ u[:, :rank] * root).to(first[other].dtype).contiguous()
        found[name] = (root[:, None] * (v[:rank] @ p.T)).to(first[name].dtype).contiguous()
        kept += float(values[:rank].square().sum())
        total += float(values.square().sum())
    return found, kept / total


def main() -> None:
    """Write the averaged adapter."""
    from safetensors.torch import load_file, save_file

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("first", type=Path, help="folder of an adapter")
    parser.add_argument("second", type=Path, help="folder of another adapter of the same base and rank")
    parser.add_argument("--share", type=float, default=0.5, help="share of the second adapter")
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args()
    weights, kept = averaged(
        *(load_file(folder / WEIGHTS) for folder in (given.first, given.second)), given.share
    )
    given.output.mkdir(parents=True, exist_ok=True)
    for name in ("adapter_config.json", "tirjudge.json"):
        shutil.copyfile(given.second / name, given.output / name)
    save_file(weights, given.output / WEIGHTS, metadata={"format": "pt"})
    print(f"{given.output}: {100 * kept:.2f} % of the averages' squared norm kept")


if __name__ == "__main__":
    main()
