import { Dialog, Notification, showDialog } from '@jupyterlab/apputils';
import { caretDownEmptyIcon } from '@jupyterlab/ui-components';
import { Widget } from '@lumino/widgets';

import { reasonOf } from '../model/server';
import type { NotebookDevice } from './device';
import { isMode, MODES, type Mode } from './facts';
import { modeView } from './labels';

/** Text of the option that stands for a mode which nobody asked for. */
const DEFAULT = 'default mode';

/** Chooses a notebook's execution mode; in its toolbar while the notebook uses hpu_magic. */
export class ModeSwitch extends Widget {
  constructor(private readonly _device: NotebookDevice) {
    super();
    this.addClass('hpu-ModeSwitch');
    const box = document.createElement('div');
    box.className = 'jp-HTMLSelect jp-DefaultStyle';
    this._select = document.createElement('select');
    this._select.setAttribute('aria-label', 'Execution mode of the HPU');
    this._select.addEventListener('change', () => void this._onChange());
    const caret = caretDownEmptyIcon.element({
      tag: 'span',
      stylesheet: 'select',
      right: '7px',
      top: '5px'
    });
    box.append(this._select, caret);
    const label = document.createElement('label');
    label.append('HPU', box);
    this.node.append(label);
    _device.changed.connect(this._refresh, this);
    this._refresh();
  }

  /** Whether the user's settings want it. */
  set isWanted(value: boolean) {
    this._isWanted = value;
    this._refresh();
  }

  override dispose(): void {
    this._device.changed.disconnect(this._refresh, this);
    super.dispose();
  }

  private _refresh(): void {
    this.setHidden(!this._isWanted || !this._device.inUse);
    const view = modeView(this._device.facts, this._device.storedMode);
    // Facts come every other second; a list that is open must not change under the user's hand.
    const looks = JSON.stringify(view);
    if (looks === this._looks) {
      return;
    }
    this._looks = looks;
    const options = MODES.map(mode => new Option(view.labels[mode], mode));
    // Nobody can ask for the default again once a mode is asked for.
    this._select.replaceChildren(...(view.value ? [] : [new Option(DEFAULT, '')]), ...options);
    this._select.value = view.value;
    this._select.title = view.tooltip;
    this.node.classList.toggle('hpu-mod-pending', view.pending);
  }

  private async _onChange(): Promise<void> {
    const mode = this._select.value;
    if (!isMode(mode)) {
      return;
    }
    try {
      if ((await this._device.chooseMode(mode)) && (await this._confirm(mode))) {
        await this._device.panel.sessionContext.restartKernel();
      }
    } catch (error) {
      Notification.error(reasonOf(error), { autoClose: false });
    }
    this._looks = '';
    this._refresh();
  }

  private async _confirm(mode: Mode): Promise<boolean> {
    const name = this._device.panel.sessionContext.name;
    const answer = await showDialog({
      title: `Restart the kernel in ${mode} mode?`,
      body:
        `The mode is read once, when torch is imported. A restart loses all variables of ${name}; ` +
        'its cells and outputs stay. Without one, the mode comes with the next start.',
      buttons: [
        Dialog.cancelButton({ label: 'Later' }),
        Dialog.warnButton({ label: 'Restart', caption: 'Restart the kernel now' })
      ],
      defaultButton: 0
    });
    return answer.button.accept;
  }

  private _isWanted = false;
  private _looks = '';
  private readonly _select: HTMLSelectElement;
}
