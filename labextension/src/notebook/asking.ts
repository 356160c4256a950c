/** Questions in a row that a stuck kernel may leave open before it is left alone. */
const PATIENCE = 3;

/**
 * Whether it is worth asking a kernel for its facts.
 *
 * A kernel without the extension gives no reply and logs an error for each question, so it is
 * asked only after a cell that uses the extension, and once more after each such cell.
 */
export class Asking {
  private _hopeful = false;
  private _answered = false;
  private _silences = 0;

  get worthwhile(): boolean {
    return this._hopeful || this._answered;
  }

  /** A new process: nothing has run in it. */
  started(): void {
    this._hopeful = this._answered = false;
    this._silences = 0;
  }

  /** A cell that uses the extension was run. */
  used(): void {
    this._hopeful = true;
    this._silences = 0;
  }

  answered(): void {
    this._hopeful = false;
    this._answered = true;
    this._silences = 0;
  }

  /** The kernel does not know the question: the extension is not loaded. */
  refused(): void {
    this._hopeful = this._answered = false;
  }

  /** No reply in time: the process is stuck for the moment, or speaks another protocol. */
  silent(): void {
    this._silences += 1;
    if (this._silences >= PATIENCE) {
      this._hopeful = this._answered = false;
    }
  }
}
