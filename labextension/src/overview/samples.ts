import type { Series } from '../model/history';
import type { TimeRange } from '../view/zoom';

/** Samples of one card as uPlot takes them: null where a value is absent. */
export interface Samples {
  readonly time: number[];
  readonly memory: (number | null)[];
  readonly utilization: (number | null)[];
}

const absent = (value: number): number | null => (isNaN(value) ? null : value);

/**
 * Put a coarse and a fine history of one card together, in the order of time: of the coarse one
 * only what lies further than half of its `interval` from any fine sample. What is far out of
 * sight is left out.
 */
export function merge(
  coarse: Series | null,
  fine: Series,
  interval: number,
  sight: TimeRange
): Samples {
  const samples: Samples = { time: [], memory: [], utilization: [] };
  const take = (series: Series, row: number) => {
    const time = series.time[row]!;
    // The neighbours beyond the edges are where lines come from.
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

/** Return the row nearest to a moment, -1 where none is within `distance` seconds. */
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
