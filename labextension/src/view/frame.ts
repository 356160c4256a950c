/** Name of the entries for drawn frames in the browser's performance timeline. */
export const DRAW_MEASURE = 'hpu_magic:draw';

/** Collects the redraws for the next frame, without duplicates. */
class FrameQueue {
  /** Draw in the next frame. */
  request(draw: () => void): void {
    this._waiting.add(draw);
    if (this._waiting.size === 1) {
      requestAnimationFrame(() => this._flush());
    }
  }

  /** Remove a redraw whose view is no longer visible. */
  cancel(draw: () => void): void {
    this._waiting.delete(draw);
  }

  private _flush(): void {
    const start = performance.now();
    const drawings = [...this._waiting];
    this._waiting.clear();
    for (const draw of drawings) {
      draw();
    }
    if (drawings.length > 0) {
      // Clear old measures to keep the timeline small; observers still receive the new one.
      performance.clearMeasures(DRAW_MEASURE);
      performance.measure(DRAW_MEASURE, { start });
    }
  }

  private readonly _waiting = new Set<() => void>();
}

/** The queue shared by all views. */
export const frames = new FrameQueue();
