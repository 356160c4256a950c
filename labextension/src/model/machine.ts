import type { ServerConnection } from '@jupyterlab/services';
import type { IDisposable } from '@lumino/disposable';
import { Signal } from '@lumino/signaling';
import type { ISignal } from '@lumino/signaling';

import { Audience } from './audience';
import { StreamConnection } from './connection';
import type { ConnectionState } from './connection';
import { History } from './history';
import { fetchPast, fetchSnapshot, shutDownHolder, stopFit } from './server';
import { isMissed } from './snapshot';
import type { Card, PastAnswer, Snapshot, StreamMessage } from './snapshot';

/** Options that the user can set; see schema/plugin.json. */
export interface MachineOptions {
  /** Seconds between samples. */
  readonly interval: number;
  /** Minutes of samples to keep. */
  readonly history: number;
  /** Thresholds, as percentages of a card's memory. */
  readonly memoryWarning: number;
  readonly memoryCritical: number;
}

export const DEFAULT_OPTIONS: MachineOptions = {
  interval: 1,
  history: 10,
  memoryWarning: 80,
  memoryCritical: 95
};

/**
 * The machine's cards, shared by all views: the latest snapshot, the history and the state of the
 * connection.
 */
export class Machine implements IDisposable {
  constructor(private readonly _settings: ServerConnection.ISettings) {
    const { interval, history } = this._options;
    this._history = new History(60 * history, interval);
    this._connection = new StreamConnection(_settings, interval);
    this._connection.received.connect((_, message) => this._receive(message));
    this._connection.stateChanged.connect(() => this._changed.emit());
    this._audience = new Audience(
      () => this._connection.open(),
      () => this._connection.close()
    );
  }

  /** Emitted after each sample, and when the connection or the options change. */
  get changed(): ISignal<this, void> {
    return this._changed;
  }

  /** The newest sample that contains readings, or null before the first one. */
  get snapshot(): Snapshot | null {
    return this._snapshot;
  }

  /** The reason that the server gives for having no newer sample, or null. */
  get missed(): string | null {
    return this._missed;
  }

  get history(): History {
    return this._history;
  }

  get connection(): ConnectionState {
    return this._connection.state;
  }

  get options(): MachineOptions {
    return this._options;
  }
  set options(options: MachineOptions) {
    const { interval, history } = options;
    this._options = options;
    if (interval !== this._history.interval || 60 * history !== this._history.length) {
      this._history = this._history.resized(60 * history, interval);
    }
    this._connection.interval = interval;
    this._changed.emit();
  }

  get isDisposed(): boolean {
    return this._connection.isDisposed;
  }

  dispose(): void {
    this._audience.dispose();
    this._connection.dispose();
    Signal.clearData(this);
  }

  /** Keep the stream open while the page is visible, until the result is disposed. */
  watch(): IDisposable {
    return this._audience.join();
  }

  /** Reconnect now, without waiting. */
  retry(): void {
    this._connection.retry();
  }

  /** Request the current state of the cards, even if the stream is closed. */
  fetch(): Promise<Snapshot> {
    return fetchSnapshot(this._settings);
  }

  /** Request the part of the last day's history that is newer than `since`. */
  fetchPast(since: number): Promise<PastAnswer> {
    return fetchPast(this._settings, since);
  }

  /** Return a card from the newest sample. */
  card(moduleId: number): Card | undefined {
    return this._snapshot?.cards.find(card => card.module_id === moduleId);
  }

  /** Shut down a kernel of this server that holds HPU `moduleId`; rejects with the server's error. */
  shutDownHolder(moduleId: number, kernelId: string): Promise<void> {
    return shutDownHolder(this._settings, moduleId, kernelId);
  }

  /** Stop the fit of a kernel that holds HPU `moduleId`; rejects with the server's error. */
  stopFit(moduleId: number, kernelId: string): Promise<void> {
    return stopFit(this._settings, moduleId, kernelId);
  }

  private _receive(message: StreamMessage): void {
    if (message.type === 'history') {
      this._history.fill(message);
    } else {
      const missed = isMissed(message);
      this._missed = missed ? message.reason : null;
      // Stale values are better than none; the views mark them as stale.
      if (!missed || this._snapshot === null) {
        this._snapshot = message;
      }
      this._history.push(message);
    }
    this._changed.emit();
  }

  private readonly _changed = new Signal<this, void>(this);
  private readonly _connection: StreamConnection;
  private readonly _audience: Audience;
  private _history: History;
  private _options = DEFAULT_OPTIONS;
  private _snapshot: Snapshot | null = null;
  private _missed: string | null = null;
}
