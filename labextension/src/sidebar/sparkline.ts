/** Positions of values on the canvas. */
interface Scale {
  x(time: number): number;
  y(value: number): number;
  readonly base: number;
}

/** The ends of a line; the values between them do not change, but only move to the left. */
export interface Ends {
  /** Times of the first and last values. */
  readonly oldest: number;
  readonly newest: number;
  /** Position of the last value on the canvas, or NaN if it is missing. */
  readonly height: number;
  readonly span: number;
  readonly edge: number;
}

/** Return whether two lines differ by less than a pixel, which is `pixel` seconds wide. */
export function looksAlike(first: Ends, second: Ends, pixel: number): boolean {
  const moved = Math.abs(first.height - second.height);
  return (
    first.span === second.span &&
    first.edge === second.edge &&
    Math.abs(first.newest - second.newest) < pixel &&
    Math.abs(first.oldest - second.oldest) < pixel &&
    (moved < 0.5 || (isNaN(first.height) && isNaN(second.height)))
  );
}

/** Points that are closer than this to the previous point, in pixels, are omitted. */
const NEAR = 1;

/** Return the paths of the values and of the area below them; NaN creates a gap. */
function trace(time: Float64Array, values: Float64Array, scale: Scale): [Path2D, Path2D] {
  const line = new Path2D();
  const area = new Path2D();
  let left = NaN;
  let right = NaN;
  let height = NaN; // height of the last point
  let drawn = NaN; // position of the last point
  for (let i = 0; i <= values.length; i++) {
    const value = i < values.length ? values[i]! : NaN;
    if (isNaN(value)) {
      if (!isNaN(left)) {
        area.lineTo(right, scale.base);
        area.lineTo(left, scale.base);
        area.closePath();
      }
      left = NaN;
      continue;
    }
    right = scale.x(time[i]!);
    const y = scale.y(value);
    if (isNaN(left)) {
      left = right;
      line.moveTo(right, y);
      area.moveTo(right, y);
    } else if (
      right - drawn >= NEAR ||
      Math.abs(y - height) >= NEAR ||
      isNaN(values[i + 1] ?? NaN)
    ) {
      line.lineTo(right, y);
      area.lineTo(right, y);
    } else {
      continue;
    }
    drawn = right;
    height = y;
  }
  return [line, area];
}

/**
 * A decorative line of one measurement over the last few minutes; the values are also shown as text
 * next to the line.
 */
export class Sparkline {
  constructor() {
    this.node.className = 'hpu-Sparkline';
    this.node.setAttribute('aria-hidden', 'true');
  }

  readonly node = document.createElement('canvas');

  /** Apply the current colors and size at the next redraw. */
  restyle(): void {
    this._context = null;
  }

  /** Draw `values`, with `edge` as the top, over `time`; the width covers `span` seconds. */
  draw(time: Float64Array, values: Float64Array, span: number, edge: number): void {
    const context = this._context ?? this._prepare();
    if (!context || time.length < 2) {
      return;
    }
    const newest = time[time.length - 1]!;
    const base = this._height - 1;
    const scale: Scale = {
      x: at => this._width * (1 - (newest - at) / span),
      y: value => base - (value / edge) * (base - 1.5),
      base
    };
    const ends: Ends = {
      oldest: time[0]!,
      newest,
      height: scale.y(values[values.length - 1]!),
      span,
      edge
    };
    if (this._drawn && looksAlike(this._drawn, ends, span / this.node.width)) {
      return;
    }
    this._drawn = ends;
    const [line, area] = trace(time, values, scale);
    context.clearRect(0, 0, this._width, this._height);
    context.globalAlpha = 0.15;
    context.fill(area);
    context.globalAlpha = 1;
    context.stroke(line);
  }

  private _prepare(): CanvasRenderingContext2D | null {
    this._width = this.node.clientWidth;
    this._height = this.node.clientHeight;
    const context = this.node.getContext('2d');
    if (!context || this._width === 0) {
      return null;
    }
    const ratio = window.devicePixelRatio || 1;
    this.node.width = Math.round(this._width * ratio);
    this.node.height = Math.round(this._height * ratio);
    context.scale(ratio, ratio);
    // The style sheet sets the theme's color.
    context.strokeStyle = context.fillStyle = getComputedStyle(this.node).color;
    context.lineWidth = 1.25;
    context.lineJoin = 'round';
    this._context = context;
    this._drawn = null; // resizing has cleared the canvas
    return context;
  }

  private _drawn: Ends | null = null;

  private _context: CanvasRenderingContext2D | null = null;
  private _width = 0;
  private _height = 0;
}
