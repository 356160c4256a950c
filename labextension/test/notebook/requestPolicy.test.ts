import { beforeEach, describe, expect, it } from 'vitest';

import { RequestPolicy } from '../../src/notebook/requestPolicy';

describe('RequestPolicy', () => {
  let requests: RequestPolicy;

  beforeEach(() => {
    requests = new RequestPolicy();
  });

  it('sends no requests to a kernel without the extension', () => {
    expect(requests.worthwhile).toBe(false);
  });

  it('sends requests after a cell that uses the extension, until the kernel does not support them', () => {
    requests.used();
    expect(requests.worthwhile).toBe(true);
    requests.refused();
    expect(requests.worthwhile).toBe(false);
    requests.used();
    expect(requests.worthwhile).toBe(true);
  });

  it('stops when the extension was unloaded', () => {
    requests.used();
    requests.answered();
    requests.refused();
    expect(requests.worthwhile).toBe(false);
  });

  it('tolerates two missing replies', () => {
    requests.used();
    requests.answered();
    requests.silent();
    requests.silent();
    expect(requests.worthwhile).toBe(true);
    requests.answered();
    requests.silent();
    requests.silent();
    expect(requests.worthwhile).toBe(true);
    requests.silent();
    expect(requests.worthwhile).toBe(false);
  });

  it('tolerates missing replies again after the next cell', () => {
    requests.used();
    requests.silent();
    requests.silent();
    requests.used();
    requests.silent();
    expect(requests.worthwhile).toBe(true);
  });

  it('reports a stuck kernel until it replies', () => {
    requests.used();
    requests.silent();
    requests.silent();
    expect(requests.stuck).toBe(false);
    requests.silent();
    expect(requests.stuck).toBe(true);
    requests.used();
    expect(requests.stuck).toBe(false);
    for (let missing = 0; missing < 3; missing++) {
      requests.silent();
    }
    requests.refused();
    expect(requests.stuck).toBe(false);
  });

  it('resets after a restart', () => {
    requests.used();
    requests.answered();
    requests.started();
    expect(requests.worthwhile).toBe(false);
  });
});
