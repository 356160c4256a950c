/** Number of consecutive requests without a reply after which no more requests are sent. */
const PATIENCE = 3;

/**
 * Decides whether to request facts from a kernel.
 *
 * A kernel without the extension does not reply, and logs an error for each request. Therefore,
 * requests start only after a cell that uses the extension, and again after each such cell.
 */
export class Asking {
  private _hopeful = false;
  private _answered = false;
  private _silences = 0;

  get worthwhile(): boolean {
    return this._hopeful || this._answered;
  }

  /** A new process has started, in which no cell has run. */
  started(): void {
    this._hopeful = this._answered = false;
    this._silences = 0;
  }

  /** A cell that uses the extension has run. */
  used(): void {
    this._hopeful = true;
    this._silences = 0;
  }

  answered(): void {
    this._hopeful = false;
    this._answered = true;
    this._silences = 0;
  }

  /** The kernel does not support the request: the extension is not loaded. */
  refused(): void {
    this._hopeful = this._answered = false;
  }

  /** No reply arrived in time: the process is stuck, or uses another protocol. */
  silent(): void {
    this._silences += 1;
    if (this._silences >= PATIENCE) {
      this._hopeful = this._answered = false;
    }
  }
}
