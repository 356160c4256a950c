import type { Past } from '../model/past';
import { spanName } from '../model/wording';
import { element, setAttribute, setText } from '../view/dom';
import { colorOf, LANES, spanEnd } from './bars';
import type { Bar } from './bars';
import { clockTime } from './axis';
import { trans } from '../model/translation';

/** The bars of a card's holders, below its curve. */
export class HolderStrip {
  constructor(private readonly _past: Past) {
    this.node.setAttribute('role', 'list');
  }

  readonly node = element('div', 'hpu-Past-strip');

  draw(bars: readonly Bar[], now: number): void {
    while (this._nodes.length < bars.length) {
      const node = element('div', 'hpu-Past-bar');
      node.setAttribute('role', 'listitem');
      this._nodes.push(node);
      this.node.append(node);
    }
    this._nodes.splice(bars.length).forEach(node => node.remove());
    const lanes = bars.reduce((most, bar) => Math.max(most, bar.lane + 1), 1);
    this.node.dataset.lanes = String(Math.min(lanes, LANES));
    bars.forEach((bar, i) => this._show(this._nodes[i]!, bar, now));
  }

  private _show(node: HTMLElement, bar: Bar, now: number): void {
    const { left, width, lane, spans } = bar;
    node.style.left = `${left.toFixed(1)}px`;
    node.style.width = `${width.toFixed(1)}px`;
    node.style.setProperty('--hpu-lane', String(lane));
    const numbers = new Set(spans.map(span => this._past.numberOf(span)));
    const number = spans.length > 0 ? this._past.numberOf(spans[0]!) : 0;
    const single = numbers.size === 1;
    node.dataset.color = single ? colorOf(number) : 'several';
    const name = single ? spanName(spans[0]!) : trans._n('%1 holder', '%1 holders', numbers.size);
    setText(node, single ? `${number}: ${name}` : name);
    const from = clockTime(Math.min(...spans.map(span => span.from)));
    const ends = spans.map(span => spanEnd(span, now));
    const until = clockTime(Math.max(...ends));
    const held = spans.some(span => span.held);
    const who = single ? trans.__('Holder %1: %2', number, name) : name;
    const text = held
      ? trans.__('%1, since %2', who, from)
      : trans.__('%1, %2 to %3', who, from, until);
    const names = single ? '' : `: ${[...new Set(spans.map(spanName))].join(', ')}`;
    setAttribute(node, 'aria-label', text + names);
    setAttribute(node, 'title', text + names);
  }

  private readonly _nodes: HTMLElement[] = [];
}
