import uPlot from 'uplot';

import { element } from '../view/dom';
import type { TimeRange } from '../view/zoomKeys';
import type { Samples } from './samples';

interface Palette {
  readonly line: string;
  readonly fill: string;
  readonly second: string;
}

function readPalette(node: Element): Palette {
  const style = getComputedStyle(node);
  const line = style.getPropertyValue('--jp-brand-color1').trim();
  return {
    line,
    fill: `color-mix(in srgb, ${line} 22%, transparent)`,
    second: style.getPropertyValue('--jp-ui-font-color1').trim()
  };
}

/** A card's memory as an area and, if known, its utilization as a dotted line. */
export class MemoryPlot {
  readonly node = element('div', 'hpu-Past-plot');

  dispose(): void {
    this._plot?.destroy();
  }

  /** Set the size to `width` by `height` pixels. */
  resize(width: number, height: number): void {
    if (this._plot) {
      this._plot.setSize({ width, height });
    } else if (width > 0) {
      this._palette = readPalette(this.node);
      this._plot = new uPlot(this._options(width, height), [[], [], []], this.node);
    }
  }

  /** Apply the colors of the current theme. */
  restyle(): void {
    this._palette = readPalette(this.node);
    this._plot?.redraw(false, true);
  }

  /** Show samples; `top` is the amount of memory at the upper edge, in bytes. */
  draw({ time, memory, utilization }: Samples, range: TimeRange, top: number): void {
    this._range = range;
    this._top = top;
    this._plot?.setData([time, memory, utilization]);
  }

  private _options(width: number, height: number): uPlot.Options {
    return {
      width,
      height,
      padding: [2, 0, 1, 0], // keeps a line at zero visible
      legend: { show: false },
      cursor: { show: false },
      axes: [{ show: false }, { show: false }],
      scales: {
        x: { range: () => [this._range.min, this._range.max] },
        y: { range: () => [0, this._top] },
        share: { range: () => [0, 100] }
      },
      series: [
        {},
        {
          stroke: () => this._palette.line,
          fill: () => this._palette.fill,
          width: 1.5,
          points: { show: false }
        },
        {
          scale: 'share',
          stroke: () => this._palette.second,
          width: 1,
          dash: [2, 3],
          points: { show: false }
        }
      ]
    };
  }

  private _range: TimeRange = { min: 0, max: 1 };
  private _top = 1;
  private _palette: Palette = { line: '', fill: '', second: '' };
  private _plot: uPlot | null = null;
}
