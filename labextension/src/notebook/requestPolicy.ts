/** Number of consecutive unanswered requests after which no more requests are sent. */
const PATIENCE = 3;

/**
 * Decides whether to request facts from a kernel.
 *
 * A kernel without the extension does not reply, and logs an error for each request. Therefore,
 * requests do not start until a cell that uses the extension has run, and each such cell restarts
 * them.
 */
export class RequestPolicy {
  private _hopeful = false;
  private _answered = false;
  private _silences = 0;

  get worthwhile(): boolean {
    return this._hopeful || this._answered;
  }

  /** Whether requests have stopped because the process was stuck; it may reply when it is idle. */
  get stuck(): boolean {
    return this._silences >= PATIENCE;
  }

  /** Call this when a new process has started and has not run any cell yet. */
  started(): void {
    this._hopeful = this._answered = false;
    this._silences = 0;
  }

  /** Call this when a cell that uses the extension has run. */
  used(): void {
    this._hopeful = true;
    this._silences = 0;
  }

  answered(): void {
    this._hopeful = false;
    this._answered = true;
    this._silences = 0;
  }

  /** Call this if the kernel does not support requests, because the extension is not loaded. */
  refused(): void {
    this._hopeful = this._answered = false;
    this._silences = 0;
  }

  /** Call this if no reply arrives in time: the process is stuck or uses another protocol. */
  silent(): void {
    this._silences += 1;
    if (this._silences >= PATIENCE) {
      this._hopeful = this._answered = false;
    }
  }
}
