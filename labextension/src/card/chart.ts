import uPlot from 'uplot';

import { element, setAttribute, setText } from '../view/dom';
import type { ChartKind } from './metrics';
import type { TimeRange } from '../view/zoomKeys';
import { trans } from '../model/translation';

/** The context shared by the charts of a tab. */
export interface ChartContext {
  /** Charts with the same key have a common cursor. */
  readonly syncKey: string;
  /** The visible time range. */
  range(): TimeRange;
  /** Called with the time range that the user selects. */
  zoom(range: TimeRange): void;
  /** Called when the user resets the zoom. */
  reset(): void;
}

/** The theme's colors, for a canvas. */
interface Palette {
  readonly line: string;
  readonly fill: string;
  readonly text: string;
  readonly grid: string;
  readonly font: string;
}

const NARROWEST_SELECTION = 4; // px; a narrower selection counts as a click

function readPalette(node: Element): Palette {
  const style = getComputedStyle(node);
  const read = (name: string) => style.getPropertyValue(name).trim();
  const line = read('--jp-brand-color1');
  return {
    line,
    fill: `color-mix(in srgb, ${line} 14%, transparent)`,
    text: read('--jp-ui-font-color2'),
    grid: read('--jp-border-color2'),
    // The font size is in pixels, because uPlot scales pixels with the screen's density.
    font: `${Math.round(0.85 * parseFloat(style.fontSize))}px ${style.fontFamily}`
  };
}

const clock = new Intl.DateTimeFormat(undefined, { timeStyle: 'medium' });
const clockMinutes = new Intl.DateTimeFormat(undefined, { timeStyle: 'short' });

/** One metric over time, with a cursor shared by all charts of the tab. */
export class Chart {
  constructor(
    readonly kind: ChartKind,
    private readonly _context: ChartContext
  ) {
    this._plotted.setAttribute('role', 'img');
    this.node.append(
      element('div', 'hpu-Chart-head', this._title, this._latest, this._legend),
      this._plotted
    );
  }

  readonly node = element('section', 'hpu-Chart');

  dispose(): void {
    this._plot?.destroy();
    this.node.remove();
  }

  /** Set the size of the axes and plot to `width` by `height` pixels. */
  resize(width: number, height: number): void {
    if (this._plot) {
      this._plot.setSize({ width, height });
    } else if (width > 0) {
      this._palette = readPalette(this.node);
      this._plot = new uPlot(this._options(width, height), [[], []], this._plotted);
    }
  }

  /** Apply the colors of the current theme. */
  restyle(): void {
    this._palette = readPalette(this.node);
    this._plot?.redraw(false, true);
  }

  /** Draw samples, as shares of `whole` if it is known; NaN creates a gap. */
  draw(time: Float64Array, values: Float64Array, whole: number | null): void {
    const { min, max } = this._context.range();
    this._time.length = this._values.length = time.length;
    let highest = 0;
    let latest = NaN;
    let seen = false;
    for (let i = 0; i < time.length; i++) {
      const at = time[i]!;
      const value = values[i]!;
      const absent = isNaN(value);
      this._time[i] = at;
      this._values[i] = absent ? null : value;
      if (!absent) {
        latest = value;
        if (at >= min && at <= max) {
          seen = true;
          highest = value > highest ? value : highest;
        }
      }
    }
    this._highest = highest;
    this._plot?.setData([this._time, this._values]);
    const { title, described, write } = this.kind;
    setText(this._title, described && seen ? described(highest, whole) : title());
    const now = isNaN(latest) ? '' : write(latest);
    setText(this._latest, now);
    const most = seen ? trans.__('visible maximum %1', write(highest)) : trans.__('none visible');
    const last = now || trans.__('no value');
    const label = trans.__('%1: latest %2, %3', title(), last, most);
    setAttribute(this._plotted, 'aria-label', label);
  }

  private _options(width: number, height: number): uPlot.Options {
    const { kind } = this;
    const axis = {
      stroke: () => this._palette.text,
      font: this._palette.font,
      grid: { stroke: () => this._palette.grid, width: 1 },
      ticks: { stroke: () => this._palette.grid, width: 1, size: 5 }
    };
    return {
      width,
      height,
      padding: [8, 40, 0, 0],
      series: [
        { label: trans.__('Time'), value: (_, at) => (at === null ? '' : clock.format(1000 * at)) },
        {
          label: kind.title(),
          stroke: () => this._palette.line,
          fill: () => this._palette.fill,
          width: 1.5,
          points: { show: false },
          value: (_, value) => (value === null ? '' : kind.write(value))
        }
      ],
      scales: {
        x: { range: () => [this._context.range().min, this._context.range().max] },
        y: { range: () => [0, kind.top(this._highest)] }
      },
      axes: [
        {
          ...axis,
          space: 75,
          size: 30,
          values: (_, ticks, __, ___, step) => this._times(ticks, step)
        },
        {
          ...axis,
          size: 72,
          values: (_, ticks) => ticks.map(kind.write),
          ...(kind.steps ? { incrs: [...kind.steps] } : {})
        }
      ],
      cursor: this._cursor(),
      legend: { mount: (_, legend) => this._legend.append(legend) },
      hooks: {
        setSelect: [plot => this._selected(plot)],
        setLegend: [plot => this._pointed(plot.cursor.idx)]
      }
    };
  }

  private _cursor(): uPlot.Cursor {
    const reset = () => {
      this._context.reset();
      return null;
    };
    return {
      sync: { key: this._context.syncKey },
      y: false,
      // All charts zoom together, so the range is set by the tab, not by the plot.
      drag: { x: true, y: false, setScale: false },
      bind: { dblclick: () => reset }
    };
  }

  private _selected(plot: uPlot): void {
    const { left, width } = plot.select;
    if (width >= NARROWEST_SELECTION) {
      plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
      const min = plot.posToVal(left, 'x');
      this._context.zoom({ min, max: plot.posToVal(left + width, 'x') });
    }
  }

  /** Show the value under the cursor, or the latest value if there is no cursor. */
  private _pointed(at: number | null | undefined): void {
    const pointed = at !== null && at !== undefined;
    this._latest.hidden = pointed;
    this._legend.hidden = !pointed;
  }

  private _times(ticks: number[], step: number): string[] {
    const format = step < 60 ? clock : clockMinutes;
    return ticks.map(tick => format.format(1000 * tick));
  }

  private readonly _title = element('h3', 'hpu-Chart-title');
  private readonly _latest = element('span', 'hpu-Chart-latest');
  private readonly _legend = element('div', 'hpu-Chart-legend');
  private readonly _plotted = element('div', 'hpu-Chart-plot');
  // Refilled for each redraw, because uPlot requires null for missing values.
  private readonly _time: number[] = [];
  private readonly _values: (number | null)[] = [];
  private _highest = 0;
  private _palette: Palette = { line: '', fill: '', text: '', grid: '', font: '' };
  private _plot: uPlot | null = null;
}
