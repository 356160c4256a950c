import { describe, expect, it } from 'vitest';

import type { HolderSpan } from '../../src/model/snapshot';
import { holdersAt, layOut } from '../../src/overview/bars';

const range = { min: 0, max: 1000 };

function span(id: number, from: number, to: number, notebook: string, held = false): HolderSpan {
  return { id, card: 0, pid: 7, command: '', kernel: 'python3', notebook, from, to, held };
}

/** Lay out over 1000 px, so that a second is a pixel. */
function bars(...spans: HolderSpan[]) {
  return layOut(spans, range, 1000, 900).map(({ left, width, lane, spans }) => [
    left,
    width,
    lane,
    spans.map(one => one.id)
  ]);
}

describe('layOut', () => {
  it('places successive holders in order of time', () => {
    expect(bars(span(1, 100, 200, 'a'), span(2, 300, 450, 'b'))).toEqual([
      [100, 100, 0, [1]],
      [300, 150, 0, [2]]
    ]);
  });

  it('clips bars at the edges and omits bars outside', () => {
    expect(bars(span(1, -50, 50, 'a'), span(2, -90, -60, 'b'), span(3, 1200, 1300, 'c'))).toEqual([
      [0, 50, 0, [1]]
    ]);
  });

  it('extends the bar of a current holder to the present', () => {
    expect(bars(span(1, 800, 880, 'a', true))).toEqual([[800, 100, 0, [1]]]);
  });

  it('uses up to three lanes for simultaneous holders', () => {
    const found = bars(
      span(1, 0, 500, 'a'),
      span(2, 100, 500, 'b'),
      span(3, 200, 400, 'c'),
      span(4, 300, 600, 'd')
    );
    expect(found).toEqual([
      [0, 500, 0, [1]],
      [100, 400, 1, [2]],
      [200, 400, 2, [3, 4]]
    ]);
  });

  it('joins short adjacent bars and keeps a minimum width', () => {
    expect(bars(span(1, 100, 101, 'a'), span(2, 103, 104, 'b'), span(3, 150, 150, 'c'))).toEqual([
      [100, 6, 0, [1, 2]],
      [150, 3, 0, [3]]
    ]);
  });

  it('limits the number of bars by the width', () => {
    const many = Array.from({ length: 5000 }, (_, i) => span(i, i / 5, i / 5 + 0.1, `n${i}`));
    expect(layOut(many, range, 1000, 900).length).toBeLessThan(500);
  });
});

describe('holdersAt', () => {
  it('returns the holders at a time', () => {
    const spans = [span(1, 100, 200, 'a'), span(2, 150, 880, 'b', true)];
    const at = (time: number) => holdersAt(spans, time, 900).map(one => one.id);
    expect([50, 120, 180, 300, 890].map(at)).toEqual([[], [1], [1, 2], [2], [2]]);
  });
});
