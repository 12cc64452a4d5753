"""Cloud reports: a stand-in for weather data that is no longer available."""

from itertools import chain
from typing import Literal, get_args

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from adjoin.errors import OptionError
from workloads.records import BATCH_ROWS, Records
from workloads.sampling import build_alias, fill_alias
from workloads.seeds import normals, state_of, units

Month = Literal["april", "august", "december"]
Weights = NDArray[np.float64]

LONGITUDES = 36_001
ROW_BYTES = 128

_REGIONS = 40
_STATIONS = 8000
_SHIP_SHARE = 0.15
_MONTHLY_CHANGE = 0.25  # deviation of the logarithm of a place's monthly reports
_SILENT_SHARE = 0.03


class CloudReports:
    """Cloud reports by longitude, in hundredths of a degree, with the frequencies of a world of stations.

    How it works:
        Stations are close together in some regions and far apart elsewhere, and report more or less often;
        ships report from everywhere. In each month a place reports slightly more or less than usual, and a
        few stations are silent. The master has the reports of April, then of August; the stream has those
        of December.

    Args:
        seed: The same seed gives the same world and reports, whatever the batch sizes.

    Example:
        >>> reports = CloudReports(seed=1)
        >>> master = reports.master(rows=10_000).read_all()
        >>> master.nbytes // master.num_rows
        128
        >>> master.schema.names
        ['longitude', 'row', 'payload']

    Cost:
        Time O(bytes), about 35 million rows per second on one core; memory O(longitudes + bytes of a batch).

    Reference:
        C. J. Hahn, S. G. Warren, cloud reports NDP-026B, as used by Bornea, Deligiannakis, Kotidis, Vassalos,
        Semi-Streamed Index Join for Near-Real Time Execution of ETL Transformations, ICDE 2011, section VI
        and figure 8.

    Departures:
        The reports are synthetic. They keep the size of rows, the number of rows and longitudes, the uneven
        frequencies, and the slight differences between months.
    """

    def __init__(self, *, seed: int = 0) -> None:
        self.seed = seed
        state = state_of(seed, "stations")
        self._place_of_station = _places(state)
        self._usual_reports = np.exp(0.7 * normals(state, _STATIONS))

    def weights(self, month: Month) -> Weights:
        """The share of each longitude in the reports of a month.

        >>> weights = CloudReports().weights("april")
        >>> len(weights), round(float(weights.sum()), 6)
        (36001, 1.0)
        """
        if month not in get_args(Month):
            raise OptionError(f"month={month!r}: choose one of {get_args(Month)}")
        state = state_of(self.seed, month)
        awake = units(state, _STATIONS) >= _SILENT_SHARE
        reports = awake * self._usual_reports * _changes(state, _STATIONS)
        by_land = np.bincount(self._place_of_station, reports, LONGITUDES)
        by_sea = _changes(state, LONGITUDES)
        return (1 - _SHIP_SHARE) * by_land / by_land.sum() + _SHIP_SHARE * by_sea / by_sea.sum()

    def master(self, rows: int = 20_000_000, batch_rows: int = BATCH_ROWS) -> pa.RecordBatchReader:
        """Reports of April, followed by as many of August."""
        return self._reader("master", {"april": rows - rows // 2, "august": rows // 2}, batch_rows)

    def stream(self, rows: int = 6_000_000, batch_rows: int = BATCH_ROWS) -> pa.RecordBatchReader:
        """Reports of December.

        >>> CloudReports().stream(rows=1000).read_all().num_rows
        1000
        """
        return self._reader("stream", {"december": rows}, batch_rows)

    def _reader(self, side: str, rows_of: dict[Month, int], batch_rows: int) -> pa.RecordBatchReader:
        records = Records(ROW_BYTES, key="longitude", seed=int(state_of(self.seed, side)[0]))
        readers = [
            records.reader(_Weighted(self.weights(month), self.seed, month).draw, rows, batch_rows)
            for month, rows in rows_of.items()
        ]
        return pa.RecordBatchReader.from_batches(records.schema, chain(*readers))


class _Weighted:
    """Draws longitudes with these weights."""

    def __init__(self, weights: Weights, seed: int, month: Month) -> None:
        self._state = state_of(seed, f"reports of {month}")
        self._stay = np.empty(len(weights))
        self._alias = np.empty(len(weights), np.int64)
        build_alias(weights, self._stay, self._alias)

    def draw(self, rows: int) -> NDArray[np.int64]:
        longitudes = np.empty(rows, np.int64)
        fill_alias(self._state, self._stay, self._alias, longitudes)
        return longitudes


def _places(state: NDArray[np.uint64]) -> NDArray[np.int64]:
    """The longitude of each station: regions differ in width and in their number of stations."""
    sizes = np.cumsum(np.exp(normals(state, _REGIONS)))
    centers = units(state, _REGIONS) * LONGITUDES
    widths = 400 * np.exp(0.7 * normals(state, _REGIONS))
    region = np.searchsorted(sizes, units(state, _STATIONS) * sizes[-1])
    places = centers[region] + widths[region] * normals(state, _STATIONS)
    return np.floor(places).astype(np.int64) % LONGITUDES


def _changes(state: NDArray[np.uint64], places: int) -> Weights:
    return np.exp(_MONTHLY_CHANGE * normals(state, places))
