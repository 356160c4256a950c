import type { TimeRange } from '../view/zoomKeys';
import { holderKey } from '../model/snapshot';
import type { HolderSpan } from '../model/snapshot';

/** A bar in the strip below a curve, for one holder or several short ones; in pixels. */
export interface Bar {
  readonly left: number;
  readonly width: number;
  readonly lane: number;
  readonly spans: readonly HolderSpan[];
}

/** Minimum width of a bar, which keeps it visible. */
const NARROWEST = 3;
/** Adjacent bars narrower than this are joined. */
const NARROW = 6;
/** Number of lanes for simultaneous holders of the same card. */
export const LANES = 3;

/** Return the end of a span; for a current holder, it is the current time. */
export function spanEnd(span: HolderSpan, now: number): number {
  return span.held ? Math.max(span.to, now) : span.to;
}

/** Return the spans that include a time. */
export function holdersAt(spans: readonly HolderSpan[], time: number, now: number): HolderSpan[] {
  return spans.filter(span => span.from <= time && time <= spanEnd(span, now));
}

/** Arrange a card's spans over `width` pixels that show a time range. */
export function layOut(
  spans: readonly HolderSpan[],
  { min, max }: TimeRange,
  width: number,
  now: number
): Bar[] {
  const bars: Bar[] = [];
  const last: (Bar | undefined)[] = [];
  const x = (time: number) => (width * (Math.min(Math.max(time, min), max) - min)) / (max - min);
  for (const span of [...spans].sort((first, second) => first.from - second.from)) {
    const end = spanEnd(span, now);
    if (end < min || span.from > max) {
      continue;
    }
    const left = Math.min(x(span.from), width - NARROWEST);
    const right = Math.max(x(end), left + NARROWEST);
    const free = last.slice(0, LANES).findIndex(bar => !bar || bar.left + bar.width <= left);
    const lane = free >= 0 ? free : last.length < LANES ? last.length : -1;
    const before = last[lane < 0 ? LANES - 1 : lane];
    const joins =
      lane < 0 ||
      (before !== undefined &&
        left - before.left - before.width <= 1 &&
        (right - left < NARROW || sameHolder(before, span)) &&
        (before.width < NARROW || sameHolder(before, span)));
    if (joins && before !== undefined) {
      const joined = {
        ...before,
        width: Math.max(before.left + before.width, right) - before.left,
        spans: [...before.spans, span]
      };
      bars[bars.indexOf(before)] = last[before.lane] = joined;
    } else {
      const bar = { left, width: right - left, lane, spans: [span] };
      bars.push(bar);
      last[lane] = bar;
    }
  }
  return bars;
}

function sameHolder(bar: Bar, span: HolderSpan): boolean {
  return bar.spans.every(other => holderKey(other) === holderKey(span));
}

/** Number of colors. Additional holders reuse the colors, but differ in number and name. */
const COLORS = 8;

/** Return the color of a holder's number, for the stylesheet. */
export function colorOf(number: number): string {
  return String((number - 1) % COLORS);
}
