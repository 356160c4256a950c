import { Notification } from '@jupyterlab/apputils';
import { NotebookActions, type INotebookTracker, type Notebook } from '@jupyterlab/notebook';
import type { ServerConnection } from '@jupyterlab/services';

import { fetchSnapshot } from '../model/server';
import type { Held } from '../model/snapshot';
import { unreadable } from '../model/wording';
import { busyReport, isBusyError, type BusyReport } from './busyMessage';
import { trans } from '../model/translation';

/** The notification's actions. If there are several kernels, the user selects one. */
export interface BusyActions {
  openSidebar(): void;
  goTo(kernels: readonly Held[]): void;
  shutDown(kernels: readonly Held[]): void;
}

/** Shows a notification with the holders if a cell fails because a card is busy. */
export class BusyCardWatch {
  constructor(
    private readonly _tracker: INotebookTracker,
    private readonly _settings: ServerConnection.ISettings,
    private readonly _actions: BusyActions
  ) {
    NotebookActions.executed.connect(this._onExecuted, this);
  }

  /** Whether the user's settings enable the notification. */
  isWanted = false;

  private _onExecuted(
    _: unknown,
    executed: {
      notebook: Notebook;
      success: boolean;
      error?: { errorValue?: string; traceback?: string[] } | null;
    }
  ): void {
    if (executed.success || !this.isWanted) {
      return;
    }
    const { errorValue = '', traceback = [] } = executed.error ?? {};
    const text = [errorValue, ...traceback].join('\n');
    if (isBusyError(text)) {
      void this._notify(text, executed.notebook);
    }
  }

  private async _notify(text: string, notebook: Notebook): Promise<void> {
    const panel = this._tracker.find(candidate => candidate.content === notebook);
    const kernelId = panel?.sessionContext.session?.kernel?.id ?? '';
    let report: BusyReport;
    try {
      report = busyReport(text, await fetchSnapshot(this._settings), kernelId);
    } catch (reason) {
      const message = trans.__(
        'A card is busy, but its holder cannot be read. %1',
        unreadable(reason)
      );
      report = { message, kernels: [] };
    }
    const { message, kernels } = report;
    // There is one notification per kernel; the next failed run replaces it.
    const former = this._shown.get(kernelId);
    if (former !== undefined) {
      Notification.dismiss(former);
    }
    const id = Notification.error(message, {
      autoClose: false,
      actions: kernels.length > 0 ? this._kernelActions(kernels) : [this._showCards()]
    });
    this._shown.set(kernelId, id);
  }

  private _kernelActions(kernels: readonly Held[]): Notification.IAction[] {
    const notebooks = kernels.filter(({ holder }) => holder.kernel?.notebook);
    const shutDown: Notification.IAction = {
      label: kernels.length > 1 ? trans.__('Shut down kernel…') : trans.__('Shut down kernel'),
      displayType: 'warn',
      callback: () => this._actions.shutDown(kernels)
    };
    const goTo: Notification.IAction = {
      label: notebooks.length > 1 ? trans.__('Go to notebook…') : trans.__('Go to notebook'),
      callback: () => this._actions.goTo(notebooks)
    };
    return notebooks.length > 0 ? [goTo, shutDown] : [shutDown];
  }

  private _showCards(): Notification.IAction {
    return { label: trans.__('Show cards'), callback: () => this._actions.openSidebar() };
  }

  /** IDs of visible notifications by kernel ID. */
  private readonly _shown = new Map<string, string>();
}
