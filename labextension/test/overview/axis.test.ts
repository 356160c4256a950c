import { describe, expect, it } from 'vitest';

import { ticks } from '../../src/overview/axis';

const noon = new Date(2025, 5, 1, 12).getTime() / 1000;

function marks(min: number, max: number, width: number): string[] {
  return ticks({ min, max }, width).at.map(at => new Date(1000 * at).toTimeString().slice(0, 8));
}

describe('ticks', () => {
  it('places ticks at full hours, minutes or seconds of local time', () => {
    expect(marks(noon - 600, noon + 1, 400)).toEqual([
      '11:50:00',
      '11:52:00',
      '11:54:00',
      '11:56:00',
      '11:58:00',
      '12:00:00'
    ]);
    expect(marks(noon - 86400, noon, 300)).toEqual(['12:00:00', '00:00:00', '12:00:00']);
    expect(marks(noon, noon + 2, 1000)).toEqual(['12:00:00', '12:00:01', '12:00:02']);
  });

  it('has no more ticks than fit', () => {
    for (const width of [1, 80, 300, 2000]) {
      for (const length of [2, 60, 600, 3600, 21600, 86400]) {
        const { at } = ticks({ min: noon - length, max: noon }, width);
        expect(at.length).toBeLessThanOrEqual(width / 76 + 1.01 + Number(width < 76));
      }
    }
  });
});
