import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { Signal } from '@lumino/signaling';

import type { Machine } from '../../src/model/machine';
import { Past } from '../../src/model/past';
import { holderKey, isPastAnswer } from '../../src/model/snapshot';
import type { HolderSpan, PastAnswer } from '../../src/model/snapshot';
import { card, kernelHolder, snapshot } from './samples';

function span(id: number, from: number, to: number, changes: Partial<HolderSpan> = {}): HolderSpan {
  const kernel = { kernel: 'python3', notebook: `n${id}.ipynb`, command: '', pid: id };
  return { id, card: 0, from, to, held: false, ...kernel, ...changes };
}

function answer(time: number[], holders: HolderSpan[], begun = 1000): PastAnswer {
  const cards = { 0: { memory_used: time.map(one => one) } };
  return { interval: 20, length: 600, begun, time, cards, holders };
}

/** A machine that returns predefined answers. */
class Fake {
  readonly changed = new Signal<this, void>(this);
  readonly asked: number[] = [];
  readonly answers: (PastAnswer | Error)[] = [];
  connection = { kind: 'live' };
  snapshot = snapshot(2000);

  async fetchPast(since: number): Promise<PastAnswer> {
    this.asked.push(since);
    const next = this.answers.shift() ?? answer([], []);
    if (next instanceof Error) {
      throw next;
    }
    return next;
  }

  async sample(): Promise<void> {
    this.changed.emit();
    await vi.advanceTimersByTimeAsync(0);
  }
}

function past(): [Fake, Past] {
  const machine = new Fake();
  return [machine, new Past(machine as unknown as Machine)];
}

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

describe('Past', () => {
  it('requests new samples once per interval', async () => {
    const [machine, model] = past();
    machine.answers.push(answer([1960, 1980], [span(1, 1960, 1980)]));
    machine.answers.push(answer([2000], [span(1, 1960, 2000)]));
    await machine.sample();
    await machine.sample();
    vi.advanceTimersByTime(20_000);
    await machine.sample();
    expect(machine.asked).toEqual([0, 1980]);
    expect([...model.history!.series(0).time]).toEqual([1960, 1980, 2000]);
    expect(model.spans(0).map(({ id, to }) => [id, to])).toEqual([[1, 2000]]);
  });

  it('requests new samples immediately if the holders change', async () => {
    const [machine] = past();
    machine.answers.push(answer([1980], []));
    await machine.sample();
    machine.snapshot = snapshot(2001, [card(0, { holders: [kernelHolder('a.ipynb')] })]);
    await machine.sample();
    expect(machine.asked).toEqual([0, 1980]);
  });

  it('requests the full history after a restart of the server', async () => {
    const [machine, model] = past();
    machine.answers.push(answer([1960], [span(1, 1960, 1960)]));
    machine.answers.push(answer([], [], 1990));
    machine.answers.push(answer([1990], [span(1, 1990, 1990)], 1990));
    await machine.sample();
    vi.advanceTimersByTime(20_000);
    await machine.sample();
    expect(machine.asked).toEqual([0, 1960, 0]);
    expect([...model.history!.series(0).time]).toEqual([1990]);
    expect(model.spans(0).map(one => one.from)).toEqual([1990]);
  });

  it('drops spans that ended before the history', async () => {
    const [machine, model] = past();
    machine.answers.push(answer([1000], [span(1, 900, 950)]));
    machine.answers.push(answer([2000], [span(2, 1990, 2000)]));
    await machine.sample();
    vi.advanceTimersByTime(20_000);
    await machine.sample();
    expect(model.spans(0).map(one => one.id)).toEqual([2]);
  });

  it('reports the error and tries again', async () => {
    const [machine, model] = past();
    machine.answers.push(new Error('The server answered 500.'));
    await machine.sample();
    expect(model.failure).toBe('The server answered 500.');
    await machine.sample();
    expect(machine.asked).toEqual([0]);
    machine.answers.push(answer([1980], []));
    vi.advanceTimersByTime(20_000);
    await machine.sample();
    expect(model.failure).toBeNull();
  });

  it('sends no requests without a stream or after disposal', async () => {
    const [machine, model] = past();
    machine.connection = { kind: 'lost' };
    await machine.sample();
    machine.connection = { kind: 'live' };
    model.dispose();
    await machine.sample();
    expect(machine.asked).toEqual([]);
  });

  it('numbers holders in order of arrival, equally on all cards', async () => {
    const [machine, model] = past();
    const again = span(3, 1970, 1980, { card: 1, notebook: 'n1.ipynb' });
    machine.answers.push(answer([1980], [span(1, 1, 2), span(2, 3, 4), again]));
    await machine.sample();
    expect([again, span(2, 3, 4), span(1, 1, 2)].map(one => model.numberOf(one))).toEqual([
      1, 2, 1
    ]);
  });
});

describe('holderKey', () => {
  it('distinguishes holders by notebook, kernel, program or process', () => {
    const alone = { notebook: null };
    expect(holderKey(span(1, 0, 0))).toBe('n1.ipynb');
    expect(holderKey(span(1, 0, 0, alone))).toBe('kernel python3 1');
    expect(holderKey(span(1, 0, 0, { ...alone, kernel: null, command: 'a.py' }))).toBe('a.py');
    expect(holderKey(span(1, 0, 0, { ...alone, kernel: null }))).toBe('process 1');
  });
});

describe('isPastAnswer', () => {
  it('rejects other values', () => {
    expect(isPastAnswer(answer([], []))).toBe(true);
    for (const other of [null, [], {}, { time: [], holders: [] }, { ...answer([], []), time: 1 }]) {
      expect(isPastAnswer(other)).toBe(false);
    }
  });
});
