import type { Metric } from '../model/snapshot';
import { capacity, peak } from '../model/units';
import { trans } from '../model/translation';

/** Description of a metric's chart. */
export interface ChartKind {
  readonly metric: Metric;
  readonly title: () => string;
  /** Return the title with the highest visible value and its share of the whole, if known. */
  readonly described?: (highest: number, whole: number | null) => string;
  /** Format a value with its unit for the axis, the legend and screen readers. */
  readonly write: (value: number) => string;
  /** Allowed distances between ticks. */
  readonly steps?: readonly number[];
  /** Return the top of the axis for the highest visible value. */
  readonly top: (highest: number) => number;
}

/** Add space above a line. */
const above = (highest: number): number => (highest > 0 ? 1.15 * highest : 1);

// Powers of two, so that ticks are at whole units of memory.
const MEMORY_STEPS = Array.from({ length: 43 }, (_, power) => 2 ** power);

/** The charts of a card's tab, from top to bottom. */
export const CHARTS: readonly ChartKind[] = [
  {
    metric: 'memory_used',
    title: () => trans.__('Memory'),
    described: (highest, whole) => trans.__('Memory: up to %1', peak(highest, whole)),
    write: capacity,
    steps: MEMORY_STEPS,
    top: highest => above(Math.max(4, highest))
  },
  {
    metric: 'utilization',
    title: () => trans.__('Utilization'),
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
