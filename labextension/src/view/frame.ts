/** Name of the measure in the browser's performance timeline, one per drawn frame. */
export const DRAW_MEASURE = 'hpu_magic:draw';

/** Collects drawings for the next frame, each of them once. */
class FrameQueue {
  /** Draw in the next frame. */
  request(draw: () => void): void {
    this._waiting.add(draw);
    if (this._waiting.size === 1) {
      requestAnimationFrame(() => this._flush());
    }
  }

  /** Remove a drawing whose view is no longer visible. */
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
      // Observers still receive the measure, but the timeline must not grow.
      performance.clearMeasures(DRAW_MEASURE);
      performance.measure(DRAW_MEASURE, { start });
    }
  }

  private readonly _waiting = new Set<() => void>();
}

/** The queue of all views. */
export const frames = new FrameQueue();
