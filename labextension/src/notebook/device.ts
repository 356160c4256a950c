import type { ISessionContext } from '@jupyterlab/apputils';
import { isCodeCellModel, type Cell } from '@jupyterlab/cells';
import { NotebookActions, type Notebook, type NotebookPanel } from '@jupyterlab/notebook';
import { KernelMessage, type Kernel } from '@jupyterlab/services';
import type { IDisposable } from '@lumino/disposable';
import { Signal, type ISignal } from '@lumino/signaling';

import { RequestPolicy } from './requestPolicy';
import {
  asksForMode,
  modeToStore,
  storedMode,
  usesExtension,
  type KernelFacts,
  type Mode
} from './facts';
import { requestFacts, requestMode, restoreMode, type Silence } from './kernelRequests';

const METADATA = 'hpu_magic';

/** Milliseconds after which a running cell has probably loaded the extension. */
const LOADING = 2000;

/** A notebook's device: the facts that its kernel reports, and the mode in its file. */
export class NotebookDevice implements IDisposable {
  constructor(readonly panel: NotebookPanel) {
    const session = panel.sessionContext;
    session.kernelChanged.connect(this._onKernelChanged, this);
    session.statusChanged.connect(this._onStatusChanged, this);
    session.iopubMessage.connect(this._onPublished, this);
    NotebookActions.executionScheduled.connect(this._onScheduled, this);
    NotebookActions.executed.connect(this._onExecuted, this);
    panel.disposed.connect(this.dispose, this);
    void panel.context.ready.then(() => this._onReady());
  }

  /** Emitted when the facts, the stored mode or the use of the extension change. */
  get changed(): ISignal<this, void> {
    return this._changed;
  }

  /** The latest facts from the kernel, or null if it reports none. */
  get facts(): KernelFacts | null {
    return this._facts;
  }

  /** The mode in the notebook's file. */
  get storedMode(): Mode | null {
    return storedMode(this.panel.content.model?.getMetadata(METADATA));
  }

  /** Whether the notebook or its kernel uses hpu_magic. */
  get inUse(): boolean {
    return this._facts !== null || this.storedMode !== null || this._named;
  }

  /** Whether the kernel is expected to reply to requests. */
  get worthAsking(): boolean {
    return this._requests.worthwhile;
  }

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  dispose(): void {
    if (!this._isDisposed) {
      this._isDisposed = true;
      window.clearTimeout(this._timer);
      Signal.clearData(this);
    }
  }

  /** Request the facts if a reply is expected; simultaneous calls share one request. */
  refresh(): Promise<void> {
    this._refreshing ??= this._refresh().finally(() => {
      this._refreshing = null;
    });
    return this._refreshing;
  }

  /** Request the facts of a kernel that holds a card, once per process. */
  holdsCard(pid: number): void {
    if (this._holder !== pid) {
      this._holder = pid;
      void this._onUsed();
    }
  }

  /**
   * Set the mode that the user selected in the kernel and in the notebook's file.
   *
   * Resolves to whether the mode requires a restart of the kernel.
   */
  async chooseMode(mode: Mode): Promise<boolean> {
    const kernel = this._kernel;
    this._choosing = true;
    try {
      const remembered = kernel !== null && this.worthAsking && (await requestMode(kernel, mode));
      this._store(mode);
      if (kernel === null) {
        return false;
      }
      if (!remembered) {
        this._restore(kernel, mode);
        return this._ran;
      }
      await this.refresh();
      return this._facts?.loaded != null && this._facts.loaded !== mode;
    } finally {
      this._choosing = false;
    }
  }

  private get _kernel(): Kernel.IKernelConnection | null {
    return this.panel.sessionContext.session?.kernel ?? null;
  }

  private async _refresh(): Promise<void> {
    const kernel = this._kernel;
    if (kernel === null || !this.worthAsking) {
      return;
    }
    const start = this._start;
    let facts: KernelFacts | Silence;
    try {
      facts = await requestFacts(kernel);
    } catch {
      return; // The kernel is restarting or has ended, which other signals report.
    }
    if (this._isDisposed || start !== this._start) {
      return;
    }
    if (facts === 'unknown') {
      this._requests.refused();
    } else if (facts === 'stuck') {
      this._requests.silent();
    } else {
      this._requests.answered();
      this._follow(facts);
      this._facts = facts;
    }
    if (!this.worthAsking) {
      this._facts = null;
    }
    this._changed.emit();
  }

  /** Store the mode in the notebook's file if a cell has set it. */
  private _follow(facts: KernelFacts): void {
    if (this._choosing) {
      return;
    }
    const mode = modeToStore(facts.requested, this.storedMode, this._askedInCell);
    if (mode !== null) {
      this._store(mode);
    }
  }

  private _store(mode: Mode): void {
    const model = this.panel.content.model;
    if (model !== null && !model.readOnly) {
      const others = model.getMetadata(METADATA) ?? {};
      model.setMetadata(METADATA, { ...others, mode });
      this._changed.emit();
    }
  }

  private _restore(kernel: Kernel.IKernelConnection, mode: Mode): void {
    const name = kernel.name;
    const specs = this.panel.sessionContext.specsManager.specs;
    if (specs?.kernelspecs[name]?.language !== 'python') {
      return;
    }
    restoreMode(kernel, mode).catch(() => {
      // The kernel ended before the request arrived; it is sent again to the next kernel.
    });
  }

  private _onReady(): void {
    if (this._isDisposed) {
      return;
    }
    this.panel.content.model?.metadataChanged.connect(() => this._changed.emit(), this);
    this._named = this._codeCells().some(cell => usesExtension(cell.source));
    // A kernel that was started before this page was opened may have loaded the extension.
    const cells = this._codeCells().filter(cell => cell.executionCount);
    this._ran ||= cells.length > 0;
    if (cells.some(cell => usesExtension(cell.source))) {
      this._requests.used();
      void this.refresh();
    }
    this._changed.emit();
  }

  private _codeCells(): { source: string; executionCount: number | null }[] {
    return Array.from(this.panel.content.model?.cells ?? [])
      .filter(isCodeCellModel)
      .map(cell => ({
        source: cell.sharedModel.getSource(),
        executionCount: cell.executionCount
      }));
  }

  private _onKernelChanged(
    _: ISessionContext,
    change: { newValue: Kernel.IKernelConnection | null }
  ): void {
    this._onStart(change.newValue);
  }

  private _onStatusChanged(_: ISessionContext, status: Kernel.Status): void {
    if (status === 'restarting' || status === 'autorestarting') {
      this._onStart(this._kernel);
      this._ran = false;
    } else if (status === 'idle' && (this._usedElsewhere || this._requests.stuck)) {
      this._usedElsewhere = false;
      void this._onUsed();
    }
  }

  /** Detect whether another window or a console uses the extension in the same kernel. */
  private _onPublished(_: ISessionContext, message: KernelMessage.IMessage): void {
    if (KernelMessage.isExecuteInputMsg(message)) {
      const { session } = message.parent_header as Partial<KernelMessage.IHeader>;
      this._usedElsewhere ||=
        session !== this._kernel?.clientId && usesExtension(message.content.code);
    }
  }

  private _onStart(kernel: Kernel.IKernelConnection | null): void {
    this._start += 1;
    this._facts = null;
    this._holder = null;
    this._requests.started();
    this._changed.emit();
    const mode = this.storedMode;
    if (kernel !== null && mode !== null) {
      // The connection clears its queue immediately after reporting a restart. A request queued in
      // the next microtask is the first one that the new process receives.
      queueMicrotask(() => this._restore(kernel, mode));
    }
  }

  private _onScheduled(_: unknown, { notebook, cell }: { notebook: Notebook; cell: Cell }): void {
    if (notebook === this.panel.content) {
      this._ran = true;
      const source = cell.model.sharedModel.getSource();
      this._askedInCell ||= asksForMode(source);
      if (usesExtension(source)) {
        this._named = true;
        window.clearTimeout(this._timer);
        this._timer = window.setTimeout(() => void this._onUsed(), LOADING);
      }
    }
  }

  private _onExecuted(_: unknown, { notebook, cell }: { notebook: Notebook; cell: Cell }): void {
    if (notebook !== this.panel.content) {
      return;
    }
    if (usesExtension(cell.model.sharedModel.getSource())) {
      window.clearTimeout(this._timer);
      void this._onUsed();
    } else {
      void this.refresh();
    }
  }

  private async _onUsed(): Promise<void> {
    // Ignore the reply to a request that was sent before the extension was loaded.
    await this._refreshing;
    this._requests.used();
    await this.refresh();
  }

  /** Kept across a restart, because a cell may set the mode and immediately restart the kernel. */
  private _askedInCell = false;
  private readonly _requests = new RequestPolicy();
  private readonly _changed = new Signal<this, void>(this);
  private _choosing = false;
  private _facts: KernelFacts | null = null;
  private _holder: number | null = null;
  private _isDisposed = false;
  private _named = false;
  private _ran = false;
  private _refreshing: Promise<void> | null = null;
  private _start = 0;
  private _timer: number | undefined;
  private _usedElsewhere = false;
}
