/** Waits, in milliseconds, that double with each failure and start over after a success. */
export class Backoff {
  /** `jitter` is the random share of a wait; it keeps clients from reconnecting simultaneously. */
  constructor(
    private readonly _first = 1000,
    private readonly _longest = 30_000,
    private readonly _jitter = 0.25,
    private readonly _random = Math.random
  ) {}

  /** Return the wait before the next attempt, and lengthen the one after it. */
  next(): number {
    const wait = Math.min(this._first * 2 ** this._failures, this._longest);
    this._failures += 1;
    return wait * (1 + this._jitter * (2 * this._random() - 1));
  }

  /** Start over, because the last attempt succeeded. */
  reset(): void {
    this._failures = 0;
  }

  private _failures = 0;
}
