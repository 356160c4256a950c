import type { Series } from '../model/history';
import type { TimeRange } from '../view/zoomKeys';

/** A card's samples in the form that uPlot requires; missing values are null. */
export interface Samples {
  readonly time: number[];
  readonly memory: (number | null)[];
  readonly utilization: (number | null)[];
}

/** Distance between two coarse samples, in intervals, above which there is a gap. */
const SLACK = 1.6;

const absent = (value: number): number | null => (isNaN(value) ? null : value);

/**
 * Merge a coarse and a fine history of the same card, sorted by time. Coarse samples within half
 * an `interval` of a fine sample are dropped, as are samples far outside `sight`.
 */
export function merge(
  coarse: Series | null,
  fine: Series,
  interval: number,
  sight: TimeRange
): Samples {
  const samples: Samples = { time: [], memory: [], utilization: [] };
  // The time of the last sample with a value.
  let known = -Infinity;
  let knownBy: Series | null = null;
  const take = (series: Series, row: number) => {
    const time = series.time[row]!;
    if (!isNaN(series.memory_used[row]!) || !isNaN(series.utilization[row]!)) {
      // A gap in one history is not a gap if the other one has samples there.
      if ((series === coarse || knownBy === coarse) && time - known <= SLACK * interval) {
        dropGap(samples, known);
      }
      known = time;
      knownBy = series;
    }
    // Lines need samples just outside the visible range to reach its edges.
    if (time < sight.min - 3 * interval || time > sight.max + 3 * interval) {
      return;
    }
    samples.time.push(time);
    samples.memory.push(absent(series.memory_used[row]!));
    samples.utilization.push(absent(series.utilization[row]!));
  };
  const rows = coarse?.time.length ?? 0;
  let next = 0;
  let latest = -Infinity;
  const takeCoarse = (until: number) => {
    for (; next < rows && coarse!.time[next]! < until; next++) {
      const time = coarse!.time[next]!;
      if (time - latest > interval / 2 && until - time > interval / 2) {
        take(coarse!, next);
      }
    }
  };
  for (let row = 0; row < fine.time.length; row++) {
    takeCoarse(fine.time[row]!);
    take(fine, row);
    latest = fine.time[row]!;
  }
  takeCoarse(Infinity);
  return samples;
}

/** Remove the rows after `time`, which mark a gap. */
function dropGap(samples: Samples, time: number): void {
  while (samples.time.length > 0 && samples.time[samples.time.length - 1]! > time) {
    samples.time.pop();
    samples.memory.pop();
    samples.utilization.pop();
  }
}

/** Return the row closest to a time, or -1 if none is within `distance` seconds. */
export function nearest(time: readonly number[], at: number, distance: number): number {
  let low = 0;
  let high = time.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (time[middle]! < at) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  const gap = (row: number) => Math.abs((time[row] ?? Infinity) - at);
  const row = gap(low - 1) <= gap(low) ? low - 1 : low;
  return gap(row) <= distance ? row : -1;
}
