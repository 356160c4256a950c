import { ServerConnection } from '@jupyterlab/services';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';

import { DEFAULT_OPTIONS, Machine } from '../../src/model/machine';
import { card, snapshot } from './samples';

describe('Machine', () => {
  const sockets: { url: string; onmessage?: (event: { data: string }) => void }[] = [];
  const requests: Request[] = [];
  let machine: Machine;
  let status: number;

  beforeEach(() => {
    vi.useFakeTimers();
    sockets.length = requests.length = 0;
    status = 204;
    class Socket {
      constructor(readonly url: string) {
        sockets.push(this);
      }
      close(): void {}
    }
    const body = () => (status === 204 ? null : '{"message": "That kernel holds no card."}');
    const settings = ServerConnection.makeSettings({
      baseUrl: 'http://localhost:8888/lab dir/',
      wsUrl: 'ws://localhost:8888/',
      fetch: (request: RequestInfo) => {
        requests.push(request as Request);
        return Promise.resolve(new Response(body(), { status }));
      },
      WebSocket: Socket as unknown as typeof WebSocket
    });
    machine = new Machine(settings);
  });

  afterEach(() => {
    machine.dispose();
    vi.useRealTimers();
  });

  const deliver = (message: unknown) => sockets[0]!.onmessage?.({ data: JSON.stringify(message) });

  it('opens one stream for all views and none without views', () => {
    expect(sockets).toHaveLength(0);
    const views = [machine.watch(), machine.watch(), machine.watch()];
    expect(sockets).toHaveLength(1);
    views.forEach(view => view.dispose());
    vi.advanceTimersByTime(60_000);
    expect(machine.connection.kind).toBe('idle');
  });

  it('keeps the newest sample and the history of each card', () => {
    const changed = vi.fn();
    machine.changed.connect(changed);
    machine.watch();
    deliver({ type: 'history', time: [998, 999], cards: { 0: { memory_used: [1, 2] } } });
    deliver({ type: 'snapshot', ...snapshot(1000, [card(0, { memory_used: 3 })]) });
    expect(machine.card(0)?.memory_used).toBe(3);
    expect(machine.card(7)).toBeUndefined();
    expect([...machine.history.series(0).memory_used]).toEqual([1, 2, 3]);
    expect(changed).toHaveBeenCalled();
  });

  it('keeps the last values while samples are missing', () => {
    machine.watch();
    const why = 'The driver did not answer within 5 s.';
    const missed = snapshot(1001, [card(0, { memory_used: null, error: why })], why);
    deliver({ type: 'snapshot', ...snapshot(1000, [card(0, { memory_used: 3 })]) });
    deliver({ type: 'snapshot', ...missed });
    expect(machine.card(0)?.memory_used).toBe(3);
    expect(machine.missed).toBe(why);
    expect([...machine.history.series(0).memory_used]).toEqual([3, NaN]);
    deliver({ type: 'snapshot', ...snapshot(1002, [card(0, { memory_used: 4 })]) });
    expect(machine.card(0)?.memory_used).toBe(4);
    expect(machine.missed).toBeNull();
  });

  it('keeps its samples if the user extends the history', () => {
    machine.watch();
    deliver({ type: 'snapshot', ...snapshot(1000) });
    machine.options = { ...DEFAULT_OPTIONS, history: 60, interval: 2 };
    expect(machine.history.length).toBe(3600);
    expect(machine.history.count).toBe(1);
  });

  it('shuts down by card and kernel id', async () => {
    await machine.shutDownHolder(2, 'a/b?c');
    expect(requests[0]?.method).toBe('DELETE');
    expect(requests[0]?.url).toContain('/hpu_magic/cards/2/holders/a%2Fb%3Fc');
  });

  it('returns the error message of the server', async () => {
    status = 409;
    await expect(machine.shutDownHolder(2, 'abc')).rejects.toThrow('That kernel holds no card.');
  });
});
