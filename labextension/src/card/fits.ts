import type { Card, Holder } from '../model/snapshot';
import { holderName } from '../model/wording';
import { element } from '../view/dom';
import { FitView } from '../view/fit';

/** Stop a holder's fit. Resolves to whether the fit received the request. */
export type StopFit = (card: Card, holder: Holder) => Promise<boolean>;

/** The fits running on a card. */
export class Fits {
  constructor(private readonly _stop: StopFit) {}

  readonly node = element('div', 'hpu-CardCharts-fits');

  /** Show a card's fits, and return whether their number has changed. */
  show(card: Card | undefined): boolean {
    const before = this._views.size;
    const gone = new Set(this._views.keys());
    for (const holder of card?.holders ?? []) {
      if (card === undefined || holder.fit === null) {
        continue;
      }
      gone.delete(holder.pid);
      let view = this._views.get(holder.pid);
      if (!view) {
        view = new FitView(() => this._stop(...this._latest.get(holder.pid)!));
        this._views.set(holder.pid, view);
        this.node.append(view.node);
      }
      this._latest.set(holder.pid, [card, holder]);
      const name = holderName(holder);
      view.show(holder.fit, name, `${holder.fit.model} · ${name}`);
    }
    for (const pid of gone) {
      this._views.get(pid)?.node.remove();
      this._views.delete(pid);
      this._latest.delete(pid);
    }
    return this._views.size !== before;
  }

  private readonly _views = new Map<number, FitView>();
  private readonly _latest = new Map<number, [Card, Holder]>();
}
