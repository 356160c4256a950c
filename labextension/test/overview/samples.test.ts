import { describe, expect, it } from 'vitest';

import { History } from '../../src/model/history';
import { merge, nearest } from '../../src/overview/samples';
import { card, snapshot } from '../model/samples';

const all = { min: 0, max: 1e6 };

function history(interval: number, ...times: number[]): History {
  const made = new History(86400, interval);
  for (const time of times) {
    made.push(snapshot(time, [card(0, { memory_used: time, utilization: time % 100 })]));
  }
  return made;
}

describe('merge', () => {
  it('prefers the fine history to the coarse history', () => {
    const coarse = history(20, 1000, 1020, 1040, 1060, 1080);
    const fine = history(1, 1038, 1039, 1040, 1041, 1042);
    const { time, memory, utilization } = merge(coarse.series(0), fine.series(0), 20, all);
    expect(time).toEqual([1000, 1020, 1038, 1039, 1040, 1041, 1042, 1060, 1080]);
    expect(memory).toEqual(time);
    expect(utilization).toEqual(time.map(one => one % 100));
  });

  it('has no gap between the two histories', () => {
    const coarse = history(20, 1000, 1020, 1040, 1060, 1080);
    const fine = history(1, 1001, 1002, 1079, 1080);
    const { time, memory } = merge(coarse.series(0), fine.series(0), 20, all);
    expect(time).toEqual([1001, 1002, 1020, 1040, 1060, 1079, 1080]);
    expect(memory).toEqual(time);
  });

  it('keeps a gap of the fine history if the coarse history has no samples', () => {
    const { time, memory } = merge(
      history(20).series(0),
      history(1, 1000, 1010).series(0),
      20,
      all
    );
    expect(time).toEqual([1000, 1001, 1010]);
    expect(memory).toEqual([1000, null, 1010]);
  });

  it('keeps gaps', () => {
    const coarse = history(20, 1000, 1200);
    const { time, memory } = merge(coarse.series(0), history(1).series(0), 20, all);
    expect(time).toEqual([1000, 1020, 1200]);
    expect(memory).toEqual([1000, null, 1200]);
  });

  it('omits samples far outside the visible range', () => {
    const coarse = history(20, ...Array.from({ length: 50 }, (_, i) => 1000 + 20 * i));
    const sight = { min: 1500, max: 1600 };
    const { time } = merge(coarse.series(0), history(1).series(0), 20, sight);
    expect([time[0], time[time.length - 1]]).toEqual([1440, 1660]);
  });

  it('works without a coarse history', () => {
    expect(merge(null, history(1, 5, 6).series(0), 20, all).time).toEqual([5, 6]);
  });
});

describe('nearest', () => {
  it('returns the row of a time, or null if no sample is near', () => {
    const time = [10, 20, 40];
    expect([9, 14, 16, 29, 31, 100].map(at => nearest(time, at, 10))).toEqual([0, 0, 1, 1, 2, -1]);
    expect(nearest([], 5, 10)).toBe(-1);
  });
});
