import { Dialog, Notification, showDialog } from '@jupyterlab/apputils';
import { caretDownEmptyIcon } from '@jupyterlab/ui-components';
import { Widget } from '@lumino/widgets';

import { reasonOf } from '../model/server';
import type { NotebookDevice } from './device';
import { isMode, MODES, type Mode } from './facts';
import { modeView } from './labels';
import { trans } from '../model/translation';

/** A switch for the execution mode in the toolbar of a notebook that uses hpu_magic. */
export class ModeSwitch extends Widget {
  constructor(private readonly _device: NotebookDevice) {
    super();
    this.addClass('hpu-ModeSwitch');
    const box = document.createElement('div');
    box.className = 'jp-HTMLSelect jp-DefaultStyle';
    this._select = document.createElement('select');
    this._select.setAttribute('aria-label', trans.__('Execution mode of the HPU'));
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

  /** Whether the user's settings enable the switch. */
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
    // Updates arrive every two seconds, but the list must not change while it is open.
    const looks = JSON.stringify(view);
    if (looks === this._looks) {
      return;
    }
    this._looks = looks;
    const options = MODES.map(mode => new Option(view.labels[mode], mode));
    // The default mode is offered only until a mode has been requested.
    this._select.replaceChildren(
      ...(view.value ? [] : [new Option(trans.__('default mode'), '')]),
      ...options
    );
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
      title: trans.__('Restart the kernel in %1 mode?', mode),
      body: trans.__(
        'The mode is read once, when torch is imported. With a restart, all variables of %1 are ' +
          'lost; cells and outputs remain. Otherwise, the mode applies after the next restart.',
        name
      ),
      buttons: [
        Dialog.cancelButton({ label: trans.__('Later') }),
        Dialog.warnButton({
          label: trans.__('Restart'),
          caption: trans.__('Restart the kernel now')
        })
      ],
      defaultButton: 0
    });
    return answer.button.accept;
  }

  private _isWanted = false;
  private _looks = '';
  private readonly _select: HTMLSelectElement;
}
