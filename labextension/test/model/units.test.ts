import { describe, expect, it } from 'vitest';

import {
  capacity,
  peak,
  percent,
  rate,
  rough,
  share,
  size,
  span,
  upperEdge,
  usage
} from '../../src/model/units';

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
  ])('formats %d as %s', (bytes, text) => {
    expect(size(bytes)).toBe(text);
  });
});

describe('share', () => {
  it.each([
    [0, '0 %'],
    [12, 'under 0.01 %'],
    [12 * 2 ** 20, '0.01 %'],
    [2.5 * GIB, '2.6 %'],
    [90 * GIB, '94 %']
  ])('formats %d bytes of 96 GiB as %s', (bytes, text) => {
    expect(share(bytes, 96 * GIB)).toBe(text);
  });
});

describe('peak', () => {
  it('contains the share of a card of known size', () => {
    expect(peak(12 * 2 ** 20, 96 * GIB)).toBe('12 MiB, 0.01 % of 96 GiB');
    expect(peak(1.5 * GIB, null)).toBe('1.5 GiB');
    expect(capacity(100 * GIB)).toBe('100 GiB');
  });
});

describe('upperEdge', () => {
  it.each([
    [12, 1e-4],
    [9 * 2 ** 20, 1e-3],
    [2 * GIB, 1e-1],
    [9 * GIB, 1],
    [96 * GIB, 1]
  ])('for a curve up to %d bytes is %d of the card', (highest, part) => {
    expect(upperEdge(highest, 96 * GIB)).toBe(part * 96 * GIB);
    // A curve may only look full if the card is full.
    expect(highest / upperEdge(highest, 96 * GIB) <= 0.8).toBe(part < 1 || highest < 70 * GIB);
  });

  it('is the highest value for a card of unknown size', () => {
    expect(upperEdge(7, null)).toBe(7);
    expect(upperEdge(0, null)).toBe(1);
  });
});

describe('usage', () => {
  it('shows a common unit once', () => {
    expect(usage(12.34 * GIB, 96 * GIB)).toBe('12.3 / 96 GiB');
  });

  it('shows two different units', () => {
    expect(usage(400 * 2 ** 20, 96 * GIB)).toBe('400 MiB / 96 GiB');
    expect(usage(0, 96 * GIB)).toBe('0 B / 96 GiB');
  });

  it('keeps significant decimals', () => {
    expect(usage(GIB, 97.5 * GIB)).toBe('1.00 / 97.5 GiB');
    expect(usage(GIB, 128 * GIB)).toBe('1.00 / 128 GiB');
  });
});

describe('rate and rough', () => {
  it.each([
    [0.2, '1 s'],
    [59.4, '59 s'],
    [59.6, '1 min 0 s'],
    [125.2, '2 min 5 s'],
    [599.4, '9 min 59 s'],
    [599.7, '10 min'],
    [2559, '42 min'],
    [3599.7, '1 h 0 min'],
    [7500, '2 h 5 min']
  ])('formats about %d s as %s', (seconds, text) => {
    expect(rough(seconds)).toBe(text);
  });

  it('formats a rate with three digits', () => {
    expect([0.05, 9.996, 42, 412.4, 999.6, 168537].map(rate)).toEqual([
      '0.05 steps/s',
      '10.0 steps/s',
      '42.0 steps/s',
      '412 steps/s',
      '1,000 steps/s',
      '169,000 steps/s'
    ]);
  });
});

describe('span and percent', () => {
  it.each([
    [60, '60 s'],
    [90, '1.5 min'],
    [600, '10 min'],
    [3600, '60 min']
  ])('formats %d s as %s', (seconds, text) => {
    expect(span(seconds)).toBe(text);
  });

  it('rounds percentages', () => {
    expect(percent(6.6)).toBe('7 %');
  });
});
