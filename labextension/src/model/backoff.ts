/** Delays in milliseconds that double after each failure and are reset after a success. */
export class Backoff {
  /** `jitter` is the random fraction of a delay; it prevents simultaneous reconnections. */
  constructor(
    private readonly _first = 1000,
    private readonly _longest = 30_000,
    private readonly _jitter = 0.25,
    private readonly _random = Math.random
  ) {}

  /** Return the delay before the next attempt, and increase the one after it. */
  next(): number {
    const wait = Math.min(this._first * 2 ** this._failures, this._longest);
    this._failures += 1;
    return wait * (1 + this._jitter * (2 * this._random() - 1));
  }

  /** Reset the delay after a successful attempt. */
  reset(): void {
    this._failures = 0;
  }

  private _failures = 0;
}
