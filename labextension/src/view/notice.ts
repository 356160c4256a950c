import type { Notice } from '../model/wording';
import { element, setText } from './dom';
import { trans } from '../model/translation';

/** Shows why data is missing or stale, and when the next attempt will be made. */
export class NoticeBox {
  constructor(retry: () => void) {
    this._retry.type = 'button';
    this._retry.addEventListener('click', retry);
    // Screen readers announce changes to this part, but not to the countdown.
    this._words.setAttribute('role', 'status');
    this._words.append(this._title, this._detail);
    this.node.append(this._words, this._footer);
    this._footer.append(this._countdown, this._retry);
    this.show(null);
  }

  readonly node = element('div', 'hpu-Notice');

  /** Show a notice, or nothing if it is null. */
  show(notice: Notice | null): void {
    this.node.hidden = notice === null;
    setText(this._title, notice?.title ?? '');
    setText(this._detail, notice?.detail ?? '');
    this._detail.hidden = !notice?.detail;
    this.node.dataset.kind = notice?.kind ?? '';
    const retryAt = notice?.retryAt;
    this._footer.hidden = retryAt === undefined;
    if (retryAt !== undefined) {
      const seconds = Math.max(0, Math.ceil((retryAt - Date.now()) / 1000));
      setText(this._countdown, trans._n('Next attempt in %1 s.', 'Next attempt in %1 s.', seconds));
    }
  }

  private readonly _words = element('div', 'hpu-Notice-words');
  private readonly _title = element('div', 'hpu-Notice-title');
  private readonly _detail = element('div', 'hpu-Notice-detail');
  private readonly _footer = element('div', 'hpu-Notice-footer');
  private readonly _countdown = element('span', 'hpu-Notice-countdown');
  private readonly _retry = element(
    'button',
    'hpu-Notice-retry jp-Button jp-mod-minimal',
    trans.__('Try now')
  );
}
