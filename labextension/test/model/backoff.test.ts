import { describe, expect, it } from 'vitest';

import { Backoff } from '../../src/model/backoff';

describe('Backoff', () => {
  it('doubles up to the longest wait and starts over after a success', () => {
    const backoff = new Backoff({ first: 100, longest: 500, random: () => 0.5 });
    expect([1, 2, 3, 4, 5].map(() => backoff.next())).toEqual([100, 200, 400, 500, 500]);
    backoff.reset();
    expect(backoff.next()).toBe(100);
  });

  it('spreads waits by its jitter on both sides', () => {
    const least = new Backoff({ first: 1000, jitter: 0.25, random: () => 0 });
    const most = new Backoff({ first: 1000, jitter: 0.25, random: () => 1 });
    expect([least.next(), most.next()]).toEqual([750, 1250]);
  });

  it('stays finite after very many failures', () => {
    const backoff = new Backoff({ longest: 30_000, jitter: 0 });
    for (let i = 0; i < 5000; i++) {
      expect(backoff.next()).toBeLessThanOrEqual(30_000);
    }
  });
});
