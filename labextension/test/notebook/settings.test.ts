import { describe, expect, it } from 'vitest';

import { readParts } from '../../src/notebook/settings';

describe('readParts', () => {
  it.each([
    [{ card: true, mode: true, memory: true, fit: true }, ['card', 'mode', 'memory', 'fit']],
    [{ memory: false }, ['card', 'mode', 'fit']],
    [{ card: false, mode: false, memory: false, fit: false }, []],
    [undefined, ['card', 'mode', 'memory', 'fit']]
  ])('reads %j', (setting, parts) => {
    expect(readParts(setting)).toEqual(parts);
  });
});
