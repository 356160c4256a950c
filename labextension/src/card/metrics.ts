import type { Metric } from '../model/snapshot';
import { size } from '../model/units';
import { trans } from '../model/translation';

/** How a chart shows one measurement. */
export interface ChartKind {
  readonly metric: Metric;
  readonly title: () => string;
  /** Write a value, with its unit, for axis, legend and screen reader. */
  readonly write: (value: number) => string;
  /** Distances that ticks may have; the axis chooses among them. */
  readonly steps?: readonly number[];
  /** The top of the axis for the highest value in sight. */
  readonly top: (highest: number) => number;
}

/** Leave a little air above a line. */
const above = (highest: number): number => (highest > 0 ? 1.15 * highest : 1);

/** Write a number with its unit, without zeros that say nothing: `1.5 GiB`. */
function brief(text: string): string {
  return text.replace(/(\.\d*?)0+ /, '$1 ').replace('. ', ' ');
}

// Powers of two, so that ticks fall on whole units of memory.
const MEMORY_STEPS = Array.from({ length: 33 }, (_, power) => 2 ** (power + 10));

/** The charts of a card's tab, from top to bottom. */
export const CHARTS: readonly ChartKind[] = [
  {
    metric: 'memory_used',
    title: () => trans.__('Memory'),
    write: value => brief(size(value)),
    steps: MEMORY_STEPS,
    top: above
  },
  {
    metric: 'utilization',
    title: () => trans.__('Utilisation'),
    write: value => `${Math.round(value)} %`,
    top: () => 100
  },
  {
    metric: 'power',
    title: () => trans.__('Power'),
    write: value => `${Math.round(value)} W`,
    top: above
  },
  {
    metric: 'temperature',
    title: () => trans.__('Temperature'),
    write: value => `${Math.round(value)} °C`,
    top: above
  }
];
