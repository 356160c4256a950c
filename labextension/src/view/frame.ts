/** Name of the measures of the browser's performance timeline, one for each drawn frame. */
export const DRAW_MEASURE = 'hpu_magic:draw';

/**
 * Drawings wait for the next frame and are then made together, each at most once,
 * however often it was asked for.
 */
class FrameQueue {
  /** Draw in the next frame. */
  request(draw: () => void): void {
    this._waiting.add(draw);
    if (this._waiting.size === 1) {
      requestAnimationFrame(() => this._flush());
    }
  }

  /** Forget a drawing whose view is gone. */
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
      // Observers still receive it; the timeline itself must not grow.
      performance.clearMeasures(DRAW_MEASURE);
      performance.measure(DRAW_MEASURE, { start });
    }
  }

  private readonly _waiting = new Set<() => void>();
}

/** The one queue of all views. */
export const frames = new FrameQueue();
