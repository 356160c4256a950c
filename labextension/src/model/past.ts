import type { IDisposable } from '@lumino/disposable';
import { Signal } from '@lumino/signaling';
import type { ISignal } from '@lumino/signaling';

import { History } from './history';
import type { Machine } from './machine';
import { reasonOf } from './server';
import { holderKey } from './snapshot';
import type { HolderSpan, PastAnswer } from './snapshot';

/** Seconds between requests before the first response. */
const RETRY = 20;

/**
 * The last day's history of all cards, from the server. When a new sample arrives, new data is
 * requested, at most once per interval, or immediately if the holders have changed.
 */
export class Past implements IDisposable {
  constructor(private readonly _machine: Machine) {
    _machine.changed.connect(this._follow, this);
  }

  /** Emitted after each request, whether successful or not. */
  get changed(): ISignal<this, void> {
    return this._changed;
  }

  /** The number of requests. */
  get version(): number {
    return this._version;
  }

  /** The samples, or null before the first response. */
  get history(): History | null {
    return this._history;
  }

  /** The error of the last request, or null. */
  get failure(): string | null {
    return this._failure;
  }

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  dispose(): void {
    this._isDisposed = true;
    this._machine.changed.disconnect(this._follow, this);
    Signal.clearData(this);
  }

  /** Return a card's holders in the order in which they acquired it. */
  spans(card: number): HolderSpan[] {
    return [...this._spans.values()].filter(span => span.card === card);
  }

  /** Return a holder's number, which never changes; the first holder is number 1. */
  numberOf(span: HolderSpan): number {
    const key = holderKey(span);
    const known = this._numbers.get(key) ?? this._numbers.size + 1;
    this._numbers.set(key, known);
    return known;
  }

  private _follow(): void {
    const { snapshot, connection } = this._machine;
    if (snapshot === null || connection.kind !== 'live') {
      return;
    }
    const holders = snapshot.cards
      .flatMap(card => card.holders.map(holder => `${card.module_id} ${holder.pid}`))
      .join();
    const due = Date.now() - this._requestedAt >= 1000 * (this._history?.interval ?? RETRY);
    if (!this._requesting && (due || holders !== this._holders)) {
      this._holders = holders;
      void this._request();
    }
  }

  private async _request(): Promise<void> {
    this._requesting = true;
    this._requestedAt = Date.now();
    try {
      const since = Math.max(this._history?.latest ?? 0, 0);
      const answer = await this._machine.fetchPast(since);
      const restarted = this._history !== null && answer.begun !== this._begun;
      this._add(restarted && since > 0 ? await this._machine.fetchPast(0) : answer);
      this._failure = null;
    } catch (error) {
      this._failure = reasonOf(error);
    } finally {
      this._requesting = false;
      this._version += 1;
    }
    this._changed.emit();
  }

  private _add(answer: PastAnswer): void {
    const { interval, length, begun } = answer;
    if (this._history === null || begun !== this._begun || interval !== this._history.interval) {
      this._history = new History(length, interval);
      this._spans.clear();
      this._begun = begun;
    }
    this._history.fill(answer);
    for (const span of answer.holders) {
      this._spans.set(span.id, span);
      this.numberOf(span);
    }
    const oldest = this._history.latest - length;
    for (const span of this._spans.values()) {
      if (span.to < oldest) {
        this._spans.delete(span.id);
      }
    }
  }

  private readonly _changed = new Signal<this, void>(this);
  private readonly _spans = new Map<number, HolderSpan>();
  private readonly _numbers = new Map<string, number>();
  private _history: History | null = null;
  private _begun: number | null = null;
  private _failure: string | null = null;
  private _version = 0;
  private _requesting = false;
  private _requestedAt = 0;
  private _holders: string | null = null;
  private _isDisposed = false;
}
