import { beforeEach, describe, expect, it } from 'vitest';

import { Asking } from '../../src/notebook/asking';

describe('Asking', () => {
  let asking: Asking;

  beforeEach(() => {
    asking = new Asking();
  });

  it('asks no kernel that never used the extension', () => {
    expect(asking.worthwhile).toBe(false);
  });

  it('asks once after a cell that uses it, and gives up on silence', () => {
    asking.used();
    expect(asking.worthwhile).toBe(true);
    asking.silent();
    expect(asking.worthwhile).toBe(false);
    asking.used();
    expect(asking.worthwhile).toBe(true);
  });

  it('goes on asking a kernel that answered, through two silences', () => {
    asking.used();
    asking.answered();
    asking.silent();
    asking.silent();
    expect(asking.worthwhile).toBe(true);
    asking.answered();
    asking.silent();
    asking.silent();
    expect(asking.worthwhile).toBe(true);
    asking.silent();
    expect(asking.worthwhile).toBe(false);
  });

  it('forgets everything at a restart', () => {
    asking.used();
    asking.answered();
    asking.started();
    expect(asking.worthwhile).toBe(false);
  });
});
