import type { Past } from '../model/past';
import type { Machine } from '../model/machine';
import type { Card } from '../model/snapshot';
import { percent, size, upperEdge, usage } from '../model/units';
import { cardTitle, cardLabel, holderName, spanName } from '../model/wording';
import { trans } from '../model/translation';
import { element, setAttribute, setText } from '../view/dom';
import type { TimeRange } from '../view/zoomKeys';
import { holdersAt, layOut } from './bars';
import type { Bar } from './bars';
import { MemoryPlot } from './plot';
import { merge, nearest } from './samples';
import type { Samples } from './samples';
import { HolderStrip } from './holderStrip';

/** Drawing parameters, which are the same for all rows. */
export interface Scene {
  readonly range: TimeRange;
  readonly now: number;
  /** Size of the plots in pixels. */
  readonly width: number;
  readonly height: number;
  /** Whether the curve is scaled to its highest visible value instead of to the card's memory. */
  readonly fitted: boolean;
}

/** One card in the overview: its current or past values, its curve and its holders. */
export class PastRow {
  constructor(
    readonly moduleId: number,
    private readonly _machine: Machine,
    private readonly _past: Past,
    open: (moduleId: number) => void
  ) {
    this._strip = new HolderStrip(_past);
    this.title.type = 'button';
    setText(this.title, cardTitle(moduleId));
    this.title.addEventListener('click', () => open(moduleId));
    this._plot.node.setAttribute('role', 'img');
    const label = element('div', 'hpu-Past-label', this.title, this._value, this._holder);
    this.node.append(label, element('div', 'hpu-Past-track', this._plot.node, this._strip.node));
  }

  readonly node = element('li', 'hpu-Past-row');
  readonly title = element('button', 'hpu-Past-title');

  dispose(): void {
    this._plot.dispose();
    this.node.remove();
  }

  /** Whether the utilization is known for any sample. */
  get hasUtilization(): boolean {
    return this._samples.utilization.some(value => value !== null);
  }

  restyle(): void {
    this._plot.restyle();
  }

  /** Draw the curve and the bars; return the bars. */
  draw(scene: Scene): readonly Bar[] {
    const { range, now, width, height, fitted } = scene;
    this._now = now;
    const coarse = this._past.history;
    const fine = this._machine.history.series(this.moduleId);
    const interval = coarse?.interval ?? 1;
    this._samples = merge(coarse?.series(this.moduleId) ?? null, fine, interval, range);
    // Values are treated as unknown at times that are farther than this from any sample.
    this._distance = Math.max(1.6 * interval, 2 * this._machine.history.interval);
    let highest = 0;
    this._samples.time.forEach((time, row) => {
      if (time >= range.min && time <= range.max) {
        highest = Math.max(highest, this._samples.memory[row] ?? 0);
      }
    });
    const total = this._machine.card(this.moduleId)?.memory_total ?? 0;
    const top = fitted || !total ? upperEdge(highest, total) : total;
    this._plot.resize(width, height);
    this._plot.draw(this._samples, range, top);
    const spans = this._past.spans(this.moduleId);
    const bars = layOut(spans, range, width, now);
    this._strip.draw(bars, now);
    const names = [...new Set(bars.flatMap(bar => bar.spans).map(spanName))];
    const label = trans.__(
      'Memory of %1, visible maximum %2',
      cardTitle(this.moduleId),
      size(highest)
    );
    const held = names.length > 0 ? trans.__('held by %1', names.join(', ')) : '';
    setAttribute(this._plot.node, 'aria-label', held ? `${label}; ${held}` : label);
    return bars;
  }

  /** Show the values at a time, or the current ones if it is null; return them as a sentence. */
  read(at: number | null): string {
    const card = this._machine.card(this.moduleId);
    const [value, holders] = at === null ? this._present(card) : this._then(at, card);
    setText(this._value, value);
    setText(this._holder, holders);
    setAttribute(this._holder, 'title', holders);
    const label = card ? cardLabel(card) : cardTitle(this.moduleId);
    setAttribute(this.title, 'aria-label', trans.__('%1: open charts', label));
    return [cardTitle(this.moduleId), value, holders].filter(part => part !== '').join(', ');
  }

  private _present(card: Card | undefined): [string, string] {
    if (!card) {
      return ['', ''];
    }
    const names = card.holders.map(holderName);
    return [
      figures(card.memory_used, card.memory_total, card.utilization),
      [...new Set(names)].join(', ')
    ];
  }

  private _then(at: number, card: Card | undefined): [string, string] {
    const row = nearest(this._samples.time, at, this._distance);
    const used = this._samples.memory[row] ?? null;
    const busy = this._samples.utilization[row] ?? null;
    const names = holdersAt(this._past.spans(this.moduleId), at, this._now).map(spanName);
    const value = figures(used, card?.memory_total ?? null, busy);
    return [value || trans.__('no sample'), [...new Set(names)].join(', ')];
  }

  private readonly _value = element('span', 'hpu-Past-value');
  private readonly _holder = element('span', 'hpu-Past-holder');
  private readonly _plot = new MemoryPlot();
  private readonly _strip: HolderStrip;
  private _samples: Samples = { time: [], memory: [], utilization: [] };
  private _distance = 0;
  private _now = 0;
}

function figures(used: number | null, total: number | null, busy: number | null): string {
  const memory = used === null ? '' : total ? usage(used, total) : size(used);
  const share = busy === null ? '' : percent(busy);
  return [memory, share].filter(part => part !== '').join(' · ');
}
