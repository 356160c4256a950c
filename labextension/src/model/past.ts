import type { IDisposable } from '@lumino/disposable';
import { Signal } from '@lumino/signaling';
import type { ISignal } from '@lumino/signaling';

import { History } from './history';
import type { Machine } from './machine';
import { reasonOf } from './server';
import type { PastSamples } from './snapshot';

/** One holder of one card, from the first to the last sample that saw it there. */
export interface HolderSpan {
  readonly id: number;
  readonly card: number;
  readonly pid: number;
  readonly command: string;
  /** Name of the kernel's kind, where the holder is a kernel of this server. */
  readonly kernel: string | null;
  /** Path of its notebook or console. */
  readonly notebook: string | null;
  readonly from: number;
  readonly to: number;
  /** Whether it holds the card still. */
  readonly held: boolean;
}

/** What the server keeps of the last day, whether somebody looks or not. */
export interface PastAnswer extends PastSamples {
  /** Seconds between samples. */
  readonly interval: number;
  /** Seconds that are kept. */
  readonly length: number;
  /** The time of the first sample of all; another one where the server was restarted. */
  readonly begun: number | null;
  readonly holders: readonly HolderSpan[];
}

/** Whether a decoded answer has the shape of the last day. */
export function isPastAnswer(value: unknown): value is PastAnswer {
  if (typeof value !== 'object' || value === null) {
    return false;
  }
  const { time, holders, interval, length } = value as Partial<PastAnswer>;
  const numbers = typeof interval === 'number' && typeof length === 'number';
  return numbers && Array.isArray(time) && Array.isArray(holders);
}

/** Who stands behind a span: the same notebook or program has the same key on every card. */
export function holderKey({ notebook, command, kernel, pid }: HolderSpan): string {
  return notebook ?? (kernel !== null ? `kernel ${kernel} ${pid}` : command || `process ${pid}`);
}

/** Seconds until the next attempt where nothing has come yet. */
const RETRY = 20;

/**
 * The last day of all cards, as the server has kept it. With each sample of the machine it asks for
 * what is new, at most once an interval and at once where other holders are seen.
 */
export class Past implements IDisposable {
  constructor(private readonly _machine: Machine) {
    _machine.changed.connect(this._follow, this);
  }

  /** Emitted when something has arrived, or has not. */
  get changed(): ISignal<this, void> {
    return this._changed;
  }

  /** Counts what has arrived. */
  get version(): number {
    return this._version;
  }

  /** The samples, or null before they have arrived. */
  get history(): History | null {
    return this._history;
  }

  /** Why there is no older history to show, where that is known. */
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

  /** Return who held a card, in the order of their coming. */
  spans(card: number): HolderSpan[] {
    return [...this._spans.values()].filter(span => span.card === card);
  }

  /** Return a holder's number, which it keeps: the first that was seen is 1. */
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
    const due = Date.now() - this._asked >= 1000 * (this._history?.interval ?? RETRY);
    if (!this._asking && (due || holders !== this._holders)) {
      this._holders = holders;
      void this._ask();
    }
  }

  private async _ask(): Promise<void> {
    this._asking = true;
    this._asked = Date.now();
    try {
      const since = Math.max(this._history?.latest ?? 0, 0);
      const answer = await this._machine.fetchPast(since);
      const restarted = this._history !== null && answer.begun !== this._begun;
      this._take(restarted && since > 0 ? await this._machine.fetchPast(0) : answer);
      this._failure = null;
    } catch (error) {
      this._failure = reasonOf(error);
    } finally {
      this._asking = false;
      this._version += 1;
    }
    this._changed.emit();
  }

  private _take(answer: PastAnswer): void {
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
  private _asking = false;
  private _asked = 0;
  private _holders: string | null = null;
  private _isDisposed = false;
}
