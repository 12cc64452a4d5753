"""How far the models are from the measurements."""

from benchmarks.figures.figure import Curves, Verdict
from benchmarks.figures.queues.setting import QueueSetting
from benchmarks.figures.xhybridjoin.setting import CORRECTED, PRINTED, WHY_EQUATION_9

MEASURED = "measured"


def contenders(setting: QueueSetting) -> dict[str, QueueSetting]:
    """The measurement, and both forms of the model."""
    return {
        MEASURED: setting,
        CORRECTED: setting.with_(model="corrected"),
        PRINTED: setting.with_(model="paper"),
    }


def verdict(curves: Curves) -> Verdict:
    """Whether the printed model is about as close as the paper says."""
    corrected, printed = (
        max(abs(ratio - 1) for ratio in curves.ratios(name, MEASURED)) for name in (CORRECTED, PRINTED)
    )
    return Verdict(
        holds=printed < 0.02,
        number=f"equation 9 is off by up to {100 * printed:.0f} %, the corrected model by up to "
        f"{100 * corrected:.1f} %",
        why=WHY_EQUATION_9,
    )
