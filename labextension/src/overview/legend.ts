import type { Past } from '../model/past';
import { trans } from '../model/translation';
import { sessionName } from '../model/wording';
import { element } from '../view/dom';
import { colorOf } from './bars';
import type { Bar } from './bars';

const MOST_ENTRIES = 24;

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
      item.dataset.color = colorOf(number);
      return item;
    });
    const rest = element('span', '', trans._n('and %1 more', 'and %1 more', more));
    this.node.replaceChildren(this._heading, ...items, ...(more > 0 ? [rest] : []));
  }

  private readonly _heading = element('span', '', trans.__('Holders, numbered as on the bars:'));
  private _key = '';
}
