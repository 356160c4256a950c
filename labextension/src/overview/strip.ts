import type { Past } from '../model/past';
import { sessionName, spanName } from '../model/wording';
import { element, setAttribute, setText } from '../view/dom';
import { LANES, spanEnd } from './bars';
import type { Bar } from './bars';
import { clockTime } from './axis';
import { trans } from '../model/translation';

/** Number of colors. Additional holders reuse them but differ in number and name. */
const COLORS = 8;

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
    node.dataset.color = single ? String((number - 1) % COLORS) : 'several';
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

/** The numbers and colors of the visible holders. */
export class Legend {
  constructor(private readonly _past: Past) {
    this.node.setAttribute('role', 'list');
    this.node.setAttribute('aria-label', trans.__('Visible holders'));
  }

  readonly node = element('div', 'hpu-Past-legend');

  draw(bars: readonly Bar[]): void {
    const seen = new Map<number, string>();
    for (const span of bars.flatMap(bar => bar.spans)) {
      seen.set(this._past.numberOf(span), sessionName(span));
    }
    const entries = [...seen].sort(([first], [second]) => first - second);
    const shown = entries.slice(0, MOST_ENTRIES);
    const more = entries.length - shown.length;
    const key = JSON.stringify([shown, more]);
    if (key === this._key) {
      return;
    }
    this._key = key;
    this.node.hidden = entries.length === 0;
    const items = shown.map(([number, name]) => {
      const item = element('span', 'hpu-Past-entry', `${number}: ${name}`);
      item.setAttribute('role', 'listitem');
      item.dataset.color = String((number - 1) % COLORS);
      return item;
    });
    const rest = element('span', '', trans._n('and %1 more', 'and %1 more', more));
    this.node.replaceChildren(this._heading, ...items, ...(more > 0 ? [rest] : []));
  }

  private readonly _heading = element('span', '', trans.__('Holders, numbered as on the bars:'));
  private _key = '';
}

const MOST_ENTRIES = 24;
