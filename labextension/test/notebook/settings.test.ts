import { describe, expect, it } from 'vitest';

import { readParts } from '../../src/notebook/settings';

describe('readParts', () => {
  it.each([
    [{ card: true, mode: true, memory: true }, ['card', 'mode', 'memory']],
    [{ memory: false }, ['card', 'mode']],
    [{ card: false, mode: false, memory: false }, []],
    [undefined, ['card', 'mode', 'memory']]
  ])('reads %j', (setting, parts) => {
    expect(readParts(setting)).toEqual(parts);
  });
});
