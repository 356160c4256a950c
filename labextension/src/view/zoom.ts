/** A stretch of time in seconds since 1970. */
export interface TimeRange {
  readonly min: number;
  readonly max: number;
}

/** No chart shows less than this, in seconds. */
const SHORTEST = 2;

/**
 * Return what a key makes of the stretch in sight: null for the whole history,
 * undefined where the key means nothing here.
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
      // The newest end stays: a history that has just begun is empty elsewhere.
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

/** Move a stretch into the history; null where it would show all of that. */
function within({ min, max }: TimeRange, whole: TimeRange): TimeRange | null {
  const length = max - min;
  if (length >= whole.max - whole.min) {
    return null;
  }
  const start = Math.min(Math.max(min, whole.min), whole.max - length);
  return { min: start, max: start + length };
}
