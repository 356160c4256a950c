import type { TimeRange } from '../view/zoomKeys';
import { element, setText } from '../view/dom';

/** Possible distances between the ticks of a time axis, in seconds. */
const STEPS = [
  1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200
] as const;

/** Width of a tick and its label, in pixels. */
const ROOM = 76;

/** Return the ticks, at whole hours, minutes or seconds, of a time range over `width` pixels. */
export function ticks({ min, max }: TimeRange, width: number): { at: number[]; step: number } {
  const least = ((max - min) * ROOM) / Math.max(width, ROOM);
  const step = STEPS.find(one => one >= least) ?? 86400;
  // Whole hours in local time may differ from whole hours in UTC.
  const offset = 60 * new Date(1000 * max).getTimezoneOffset();
  const at: number[] = [];
  for (let time = Math.ceil((min - offset) / step) * step + offset; time <= max; time += step) {
    at.push(time);
  }
  return { at, step };
}

const seconds = new Intl.DateTimeFormat(undefined, { timeStyle: 'medium' });
const minutes = new Intl.DateTimeFormat(undefined, { timeStyle: 'short' });
const day = new Intl.DateTimeFormat(undefined, { weekday: 'short', day: 'numeric' });

/** Format a time of day with seconds. */
export function clockTime(at: number): string {
  return seconds.format(1000 * at);
}

function mark(at: number, step: number): string {
  const date = new Date(1000 * at);
  if (date.getHours() === 0 && date.getMinutes() === 0 && date.getSeconds() === 0) {
    return day.format(date);
  }
  return (step < 60 ? seconds : minutes).format(date);
}

/** The time axis of all rows, with times at the top and lines behind the rows. */
export class TimeAxis {
  constructor() {
    this.node.setAttribute('aria-hidden', 'true');
  }

  readonly node = element('div', 'hpu-TimeAxis');
  readonly lines = element('div', 'hpu-TimeAxis-lines');

  draw(range: TimeRange, width: number): void {
    const { at, step } = ticks(range, width);
    this._fill(this._times, this.node, 'hpu-TimeAxis-time', at.length);
    this._fill(this._marks, this.lines, 'hpu-TimeAxis-line', at.length);
    at.forEach((time, i) => {
      const share = (time - range.min) / (range.max - range.min);
      this._times[i]!.style.left = this._marks[i]!.style.left = `${100 * share}%`;
      const whole = Math.min(share, 1 - share) * width > ROOM / 2;
      setText(this._times[i]!, whole ? mark(time, step) : '');
    });
  }

  private _fill(nodes: HTMLElement[], parent: Element, className: string, count: number): void {
    while (nodes.length < count) {
      const node = element('span', className);
      nodes.push(node);
      parent.append(node);
    }
    nodes.splice(count).forEach(node => node.remove());
  }

  private readonly _times: HTMLElement[] = [];
  private readonly _marks: HTMLElement[] = [];
}
