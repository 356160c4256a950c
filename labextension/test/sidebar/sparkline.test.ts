import { describe, expect, it } from 'vitest';

import { looksAlike } from '../../src/sidebar/sparkline';

const drawn = { oldest: 0, newest: 600, height: 12, span: 600, edge: 2 ** 34 };

describe('A drawn line', () => {
  it('is kept if it would move by less than a pixel', () => {
    expect(looksAlike(drawn, { ...drawn, oldest: 2, newest: 602, height: 12.4 }, 2.5)).toBe(true);
  });

  it.each([
    ['its newest end', { newest: 602.5 }],
    ['its oldest end', { oldest: 2.5 }],
    ['its height', { height: 12.5 }],
    ['its scale', { edge: 2 ** 35 }],
    ['its length', { span: 601 }],
    ['the presence of a value', { height: NaN }]
  ])('is drawn again with %s', (_, change) => {
    expect(looksAlike(drawn, { ...drawn, ...change }, 2.5)).toBe(false);
  });

  it('is kept while its value is missing', () => {
    const missing = { ...drawn, height: NaN };
    expect(looksAlike(missing, { ...missing, newest: 601 }, 2.5)).toBe(true);
  });
});
