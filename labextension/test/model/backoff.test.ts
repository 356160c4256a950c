import { describe, expect, it } from 'vitest';

import { Backoff } from '../../src/model/backoff';

describe('Backoff', () => {
  it('doubles up to the longest wait and restarts after a success', () => {
    const backoff = new Backoff(100, 500, 0.25, () => 0.5);
    expect([1, 2, 3, 4, 5].map(() => backoff.next())).toEqual([100, 200, 400, 500, 500]);
    backoff.reset();
    expect(backoff.next()).toBe(100);
  });

  it('varies waits by its jitter in both directions', () => {
    const least = new Backoff(1000, 30_000, 0.25, () => 0);
    const most = new Backoff(1000, 30_000, 0.25, () => 1);
    expect([least.next(), most.next()]).toEqual([750, 1250]);
  });

  it('is finite after very many failures', () => {
    const backoff = new Backoff(1000, 30_000, 0);
    for (let i = 0; i < 5000; i++) {
      expect(backoff.next()).toBeLessThanOrEqual(30_000);
    }
  });
});
