import { describe, expect, it } from 'vitest';

import { percent, size, span, usage } from '../../src/model/units';

const GIB = 2 ** 30;

describe('size', () => {
  it.each([
    [0, '0 B'],
    [1023, '1023 B'],
    [1023.9996 * 1024, '1.00 MiB'],
    [1536 * 2 ** 20, '1.50 GiB'],
    [12.34 * GIB, '12.3 GiB'],
    [400 * 2 ** 20, '400 MiB'],
    [2 ** 41, '2.00 TiB']
  ])('writes %d as %s', (bytes, text) => {
    expect(size(bytes)).toBe(text);
  });
});

describe('usage', () => {
  it('names a shared unit once', () => {
    expect(usage(12.34 * GIB, 96 * GIB)).toBe('12.3 / 96 GiB');
  });

  it('names both units where they differ', () => {
    expect(usage(400 * 2 ** 20, 96 * GIB)).toBe('400 MiB / 96 GiB');
    expect(usage(0, 96 * GIB)).toBe('0 B / 96 GiB');
  });

  it('keeps a fraction that says something', () => {
    expect(usage(GIB, 97.5 * GIB)).toBe('1.00 / 97.5 GiB');
    expect(usage(GIB, 128 * GIB)).toBe('1.00 / 128 GiB');
  });
});

describe('span and percent', () => {
  it.each([
    [60, '60 s'],
    [90, '1.5 min'],
    [600, '10 min'],
    [3600, '60 min']
  ])('writes %d s as %s', (seconds, text) => {
    expect(span(seconds)).toBe(text);
  });

  it('rounds per cents', () => {
    expect(percent(6.6)).toBe('7 %');
  });
});
