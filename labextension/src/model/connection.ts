import type { ServerConnection } from '@jupyterlab/services';
import type { IDisposable } from '@lumino/disposable';
import { Signal } from '@lumino/signaling';
import type { ISignal } from '@lumino/signaling';

import { Backoff } from './backoff';
import { fetchSnapshot, ServerError, streamUrl } from './server';
import { parseMessage } from './snapshot';
import type { StreamMessage } from './snapshot';

/** The state of the stream; times are comparable to `Date.now()`. */
export type ConnectionState =
  | { readonly kind: 'idle' }
  | { readonly kind: 'connecting' }
  | { readonly kind: 'live' }
  /** The server does not respond. */
  | { readonly kind: 'lost'; readonly retryAt: number }
  /** The server answers requests, but a WebSocket cannot be opened. */
  | { readonly kind: 'blocked'; readonly retryAt: number }
  /** The server is running without hpu_magic's extension. */
  | { readonly kind: 'missing'; readonly retryAt: number }
  /** The user does not have permission to see the cards. */
  | { readonly kind: 'refused'; readonly retryAt: number };

type Failure = 'lost' | 'blocked' | 'missing' | 'refused';

/** Return the cause of a failed request. */
export function failureOf(error: unknown): Exclude<Failure, 'blocked'> {
  const status = error instanceof ServerError ? error.status : 0;
  if (status === 404) {
    return 'missing';
  }
  return status === 401 || status === 403 ? 'refused' : 'lost';
}

/** Milliseconds without data after which a stream is considered lost; at least three intervals. */
const LONGEST_SILENCE = 15_000;

/**
 * The stream of samples, which opens and closes on demand, reports the cause of a failure, and
 * reconnects automatically, waiting longer after each failure.
 */
export class StreamConnection implements IDisposable {
  constructor(
    private readonly _settings: ServerConnection.ISettings,
    private _interval: number,
    private readonly _backoff = new Backoff()
  ) {}

  /** Emitted when the state changes. */
  get stateChanged(): ISignal<this, ConnectionState> {
    return this._stateChanged;
  }

  /** Emitted for each message from the server. */
  get received(): ISignal<this, StreamMessage> {
    return this._received;
  }

  get state(): ConnectionState {
    return this._state;
  }

  /** Seconds between samples. */
  get interval(): number {
    return this._interval;
  }
  set interval(seconds: number) {
    if (seconds === this._interval) {
      return;
    }
    this._interval = seconds;
    if (this._socket?.readyState === 1) {
      this._socket.send(JSON.stringify({ type: 'interval', seconds }));
    }
  }

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  dispose(): void {
    if (!this._isDisposed) {
      this.close();
      this._isDisposed = true;
      Signal.clearData(this);
    }
  }

  /** Open the stream; this has no effect if it is already open or opening. */
  open(): void {
    if (!this._isDisposed && this._state.kind === 'idle') {
      this._connect();
    }
  }

  /** Close the stream and stop trying to connect. */
  close(): void {
    this._drop();
    this._backoff.reset();
    this._change({ kind: 'idle' });
  }

  /** Reconnect now, without waiting. */
  retry(): void {
    if ('retryAt' in this._state) {
      this._connect();
    }
  }

  private _connect(): void {
    this._drop();
    this._change({ kind: 'connecting' });
    const socket = new this._settings.WebSocket(streamUrl(this._settings, this._interval));
    this._socket = socket;
    const requested = this._interval;
    socket.onopen = () => {
      if (this._interval !== requested) {
        socket.send(JSON.stringify({ type: 'interval', seconds: this._interval }));
      }
      this._listen();
    };
    socket.onmessage = event => {
      this._listen();
      const message = parseMessage(event.data);
      if (message) {
        // Only received data proves that the stream works, because a proxy may accept a connection
        // even if the server behind it is down.
        this._backoff.reset();
        this._change({ kind: 'live' });
        this._received.emit(message);
      }
    };
    // Every failure ends with a close event.
    socket.onclose = () => void this._ended(socket);
  }

  /** Restart the timer after which a silent stream is considered lost. */
  private _listen(): void {
    window.clearTimeout(this._watchdog);
    const socket = this._socket;
    const patience = Math.max(LONGEST_SILENCE, 3000 * this._interval);
    this._watchdog = window.setTimeout(() => {
      if (socket) {
        void this._ended(socket);
      }
    }, patience);
  }

  private async _ended(socket: WebSocket): Promise<void> {
    if (socket !== this._socket) {
      return;
    }
    this._drop();
    const attempt = this._attempt;
    const kind = await this._reason(this._state.kind === 'live');
    if (attempt !== this._attempt) {
      return; // closed or reconnected during the request
    }
    const wait = this._backoff.next();
    this._change({ kind, retryAt: Date.now() + wait });
    this._timer = window.setTimeout(() => this._connect(), wait);
  }

  /** Request the cards to find the cause, because browsers hide a WebSocket's HTTP status. */
  private async _reason(wasLive: boolean): Promise<Failure> {
    const attempt = this._attempt;
    try {
      const snapshot = await fetchSnapshot(this._settings);
      if (attempt === this._attempt) {
        this._received.emit({ type: 'snapshot', ...snapshot });
      }
      return wasLive ? 'lost' : 'blocked';
    } catch (error) {
      return failureOf(error);
    }
  }

  private _drop(): void {
    window.clearTimeout(this._timer);
    window.clearTimeout(this._watchdog);
    this._attempt += 1;
    const socket = this._socket;
    this._socket = null;
    if (socket) {
      socket.onopen = socket.onmessage = socket.onclose = null;
      socket.close();
    }
  }

  private _change(state: ConnectionState): void {
    if (state.kind === this._state.kind && !('retryAt' in state)) {
      return;
    }
    this._state = state;
    this._stateChanged.emit(state);
  }

  private readonly _stateChanged = new Signal<this, ConnectionState>(this);
  private readonly _received = new Signal<this, StreamMessage>(this);
  private _state: ConnectionState = { kind: 'idle' };
  private _socket: WebSocket | null = null;
  private _timer = 0;
  private _watchdog = 0;
  /** Number of the current attempt, used to ignore late replies. */
  private _attempt = 0;
  private _isDisposed = false;
}
