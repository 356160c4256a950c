/** How long to wait before the next attempt; all times are in milliseconds. */
export interface BackoffOptions {
  readonly first?: number;
  readonly longest?: number;
  readonly factor?: number;
  /** Share by which a wait varies, so that clients of a restarted server spread out. */
  readonly jitter?: number;
  readonly random?: () => number;
}

/** Waits that grow with each failure and start over after a success. */
export class Backoff {
  constructor(options: BackoffOptions = {}) {
    this._first = options.first ?? 1000;
    this._longest = options.longest ?? 30_000;
    this._factor = options.factor ?? 2;
    this._jitter = options.jitter ?? 0.25;
    this._random = options.random ?? Math.random;
  }

  /** Return the wait before the next attempt; the one after that is longer. */
  next(): number {
    const wait = Math.min(this._first * this._factor ** this._failures, this._longest);
    this._failures += 1;
    return wait * (1 + this._jitter * (2 * this._random() - 1));
  }

  /** Start over: the last attempt succeeded. */
  reset(): void {
    this._failures = 0;
  }

  private readonly _first: number;
  private readonly _longest: number;
  private readonly _factor: number;
  private readonly _jitter: number;
  private readonly _random: () => number;
  private _failures = 0;
}
