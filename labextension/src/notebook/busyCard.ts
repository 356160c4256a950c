import { Notification } from '@jupyterlab/apputils';
import { NotebookActions, type INotebookTracker, type Notebook } from '@jupyterlab/notebook';
import type { ServerConnection } from '@jupyterlab/services';

import { fetchSnapshot } from '../model/server';
import { busyReport, isBusyError, type BusyHolder, type BusyReport } from './busy';

/** What the notification can do for the user. */
export interface BusyActions {
  openSidebar(): void;
  goTo(holder: BusyHolder): void;
  shutDown(holder: BusyHolder): void;
}

/** Says who holds the card when a cell fails because a card is busy. */
export class BusyCardWatch {
  constructor(
    private readonly _tracker: INotebookTracker,
    private readonly _settings: ServerConnection.ISettings,
    private readonly _actions: BusyActions
  ) {
    NotebookActions.executed.connect(this._onExecuted, this);
  }

  /** Whether the user's settings want it. */
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
      void this._tell(text, executed.notebook);
    }
  }

  private async _tell(text: string, notebook: Notebook): Promise<void> {
    const panel = this._tracker.find(candidate => candidate.content === notebook);
    const kernelId = panel?.sessionContext.session?.kernel?.id ?? '';
    let report: BusyReport;
    try {
      report = busyReport(text, await fetchSnapshot(this._settings), kernelId);
    } catch (reason) {
      const why = reason instanceof Error ? reason.message : String(reason);
      report = { message: `A card is busy. Who holds it is not known: ${why}`, holder: null };
    }
    const { message, holder } = report;
    // One notification a kernel: running the cell again replaces what the last run said.
    const former = this._shown.get(kernelId);
    if (former !== undefined) {
      Notification.dismiss(former);
    }
    const id = Notification.error(message, {
      autoClose: false,
      actions: holder ? this._holderActions(holder) : [this._showCards()]
    });
    this._shown.set(kernelId, id);
  }

  private _holderActions(holder: BusyHolder): Notification.IAction[] {
    const shutDown: Notification.IAction = {
      label: 'Shut down kernel',
      displayType: 'warn',
      callback: () => this._actions.shutDown(holder)
    };
    const goTo: Notification.IAction = {
      label: 'Go to notebook',
      callback: () => this._actions.goTo(holder)
    };
    return holder.kernel.notebook ? [goTo, shutDown] : [shutDown];
  }

  private _showCards(): Notification.IAction {
    return { label: 'Show cards', callback: () => this._actions.openSidebar() };
  }

  /** Kernel id to the notification that is shown for it. */
  private readonly _shown = new Map<string, string>();
}
