import { describe, expect, it } from 'vitest';

import { keyZoom } from '../../src/view/zoomKeys';

const whole = { min: 0, max: 600 };

describe('keyZoom', () => {
  it('halves and doubles the range before the newest visible time', () => {
    expect(keyZoom('+', whole, whole)).toEqual({ min: 300, max: 600 });
    expect(keyZoom('-', { min: 200, max: 300 }, whole)).toEqual({ min: 100, max: 300 });
  });

  it('shows at most the full history', () => {
    expect(keyZoom('-', { min: 150, max: 450 }, whole)).toBeNull();
    expect(keyZoom('ArrowLeft', whole, whole)).toBeNull();
  });

  it('moves by a quarter of the range and stops at the ends', () => {
    expect(keyZoom('ArrowLeft', { min: 100, max: 200 }, whole)).toEqual({ min: 75, max: 175 });
    expect(keyZoom('ArrowRight', { min: 490, max: 590 }, whole)).toEqual({ min: 500, max: 600 });
  });

  it('has a minimum range', () => {
    const shortest = { min: 10, max: 13 };
    expect(keyZoom('+', shortest, whole)).toEqual(shortest);
  });

  it('resets the zoom and ignores other keys', () => {
    expect(keyZoom('Escape', { min: 1, max: 2 }, whole)).toBeNull();
    expect(keyZoom('0', { min: 1, max: 2 }, whole)).toBeNull();
    expect(keyZoom('a', whole, whole)).toBeUndefined();
  });
});
