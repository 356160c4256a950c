/** A time range in seconds since the epoch. */
export interface TimeRange {
  readonly min: number;
  readonly max: number;
}

/** Minimum length of a visible range, in seconds. */
const SHORTEST = 2;

/**
 * Return the visible time range after a key press: null for the entire history, or undefined for
 * other keys.
 */
export function keyZoom(
  key: string,
  shown: TimeRange,
  whole: TimeRange
): TimeRange | null | undefined {
  const { min, max } = shown;
  const quarter = (max - min) / 4;
  switch (key) {
    case '+':
    case '=':
      // Keep the newest part in view, because the rest of a new history is empty.
      return max - min < 2 * SHORTEST ? shown : { min: min + 2 * quarter, max };
    case '-':
      return within({ min: min - 4 * quarter, max }, whole);
    case 'ArrowLeft':
      return within({ min: min - quarter, max: max - quarter }, whole);
    case 'ArrowRight':
      return within({ min: min + quarter, max: max + quarter }, whole);
    case '0':
    case 'Escape':
      return null;
    default:
      return undefined;
  }
}

/** Move a time range into the history; return null if it would show the entire history. */
function within({ min, max }: TimeRange, whole: TimeRange): TimeRange | null {
  const length = max - min;
  if (length >= whole.max - whole.min) {
    return null;
  }
  const start = Math.min(Math.max(min, whole.min), whole.max - length);
  return { min: start, max: start + length };
}
