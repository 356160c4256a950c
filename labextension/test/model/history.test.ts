import { describe, expect, it } from 'vitest';

import { History } from '../../src/model/history';
import { card, snapshot } from './samples';

function filled(count: number, history = new History(10, 1), start = 1000): History {
  for (let i = 0; i < count; i++) {
    history.push(snapshot(start + i, [card(0, { memory_used: i })]));
  }
  return history;
}

describe('History', () => {
  it('returns samples in order, with NaN for missing values', () => {
    const { time, memory_used, power } = filled(3).series(0);
    expect([...time]).toEqual([1000, 1001, 1002]);
    expect([...memory_used]).toEqual([0, 1, 2]);
    expect([...power]).toEqual([NaN, NaN, NaN]);
  });

  it('keeps only recent samples, in preallocated memory', () => {
    const history = filled(5000);
    const { time, memory_used } = history.series(0);
    expect(time[0]).toBe(5999 - 10);
    expect([...memory_used].pop()).toBe(4999);
    expect(time.buffer.byteLength).toBe(2 * history.capacity * 8);
    expect(history.count).toBe(history.capacity);
  });

  it('drops samples within its interval', () => {
    const history = new History(10, 1);
    [0, 0.5, 1, 1.5, 1.95].forEach(time => history.push(snapshot(time)));
    expect([...history.series(0).time]).toEqual([0, 1, 1.95]);
  });

  it('has a gap if samples are missing for long', () => {
    const history = new History(60, 1);
    [0, 1, 20].forEach(time => history.push(snapshot(time, [card(0, { memory_used: 7 })])));
    const { time, memory_used } = history.series(0);
    expect([...time]).toEqual([0, 1, 2, 20]);
    expect([...memory_used]).toEqual([7, 7, NaN, 7]);
  });

  it('adds the samples of the server once', () => {
    const history = filled(2, new History(60, 1), 1002);
    const past = { time: [1000, 1003, 1004], cards: { 0: { memory_used: [90, 91, null] } } };
    history.fill(past);
    history.fill(past);
    expect([...history.series(0).time]).toEqual([1002, 1003, 1004]);
    expect([...history.series(0).memory_used]).toEqual([0, 1, NaN]);
  });

  it('is empty for an unknown card, and NaN before a new card', () => {
    const history = filled(2);
    expect(history.series(5).time).toHaveLength(0);
    history.push(snapshot(1002, [card(0), card(5, { power: 90 })]));
    expect([...history.series(5).power]).toEqual([NaN, NaN, 90]);
  });

  it('has no value for a card missing from a sample', () => {
    const history = filled(30);
    history.push(snapshot(1030, []));
    expect([...history.series(0).memory_used].pop()).toBeNaN();
  });

  it('resets if the clock of the server is set back', () => {
    const history = filled(5);
    history.push(snapshot(500, [card(0, { memory_used: 3 })]));
    expect([...history.series(0).time]).toEqual([500]);
  });

  it('keeps its samples after a change of its length', () => {
    const longer = filled(8).resized(100, 1);
    expect([...longer.series(0).memory_used]).toEqual([0, 1, 2, 3, 4, 5, 6, 7]);
    expect([...filled(8).resized(100, 2).series(0).time]).toEqual([1000, 1002, 1004, 1006]);
  });

  it('grows from one minute to its full length', () => {
    const history = filled(3, new History(300, 1));
    expect(history.series(0).span).toBe(60);
    expect(filled(500, history, 1003).series(0).span).toBe(300);
  });
});
