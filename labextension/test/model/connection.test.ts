import { ServerConnection } from '@jupyterlab/services';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';

import { Backoff } from '../../src/model/backoff';
import { StreamConnection } from '../../src/model/connection';
import type { StreamMessage } from '../../src/model/snapshot';
import { snapshot } from './samples';

/** A socket whose other end is the test. */
class Socket {
  static opened: Socket[] = [];

  constructor(readonly url: string) {
    Socket.opened.push(this);
  }

  readyState = 0;
  readonly sent: string[] = [];
  onopen: (() => void) | null = null;
  onmessage: ((event: { data: unknown }) => void) | null = null;
  onclose: (() => void) | null = null;

  send(text: string): void {
    this.sent.push(text);
  }

  close(): void {
    this.readyState = 3;
  }

  accept(): void {
    this.readyState = 1;
    this.onopen?.();
  }

  deliver(message: unknown): void {
    this.onmessage?.({ data: JSON.stringify(message) });
  }

  fail(): void {
    this.readyState = 3;
    this.onclose?.();
  }
}

const sample = { type: 'snapshot', ...snapshot(1000) };

describe('StreamConnection', () => {
  let answer: () => Promise<Response>;
  let connection: StreamConnection;

  function connect(settings: Partial<ServerConnection.ISettings> = {}): StreamConnection {
    const all = ServerConnection.makeSettings({
      baseUrl: 'https://hub.example/user/ada/',
      wsUrl: 'wss://hub.example/user/ada/',
      token: 'secret token',
      appendToken: true,
      fetch: () => answer(),
      WebSocket: Socket as unknown as typeof WebSocket,
      ...settings
    });
    return new StreamConnection(all, 2, new Backoff(1000, 30_000, 0));
  }

  const last = () => Socket.opened[Socket.opened.length - 1]!;
  const settle = () => vi.advanceTimersByTimeAsync(0);
  const http = (status: number, body: unknown = {}) =>
    Promise.resolve(new Response(JSON.stringify(body), { status }));

  beforeEach(() => {
    vi.useFakeTimers();
    Socket.opened = [];
    answer = () => Promise.reject(new TypeError('Failed to fetch'));
    connection = connect();
  });

  afterEach(() => {
    connection.dispose();
    vi.useRealTimers();
  });

  it('connects to the base URL with interval and token', () => {
    connection.open();
    const expected = 'wss://hub.example/user/ada/hpu_magic/stream?interval=2&token=secret+token';
    expect(last().url).toBe(expected);
  });

  it('omits the token if cookies authenticate', () => {
    connection = connect({ appendToken: false });
    connection.open();
    expect(last().url).toBe('wss://hub.example/user/ada/hpu_magic/stream?interval=2');
  });

  it('is live after the first message and forwards messages', () => {
    const received: StreamMessage[] = [];
    connection.received.connect((_, message) => received.push(message));
    connection.open();
    last().accept();
    expect(connection.state.kind).toBe('connecting');
    last().deliver({ type: 'history', time: [], cards: {} });
    last().deliver(sample);
    expect(connection.state.kind).toBe('live');
    expect(received.map(message => message.type)).toEqual(['history', 'snapshot']);
  });

  it('ignores invalid frames', () => {
    const received: StreamMessage[] = [];
    connection.received.connect((_, message) => received.push(message));
    connection.open();
    last().onmessage?.({ data: '<html>' });
    last().onmessage?.({ data: new ArrayBuffer(2) });
    [null, 7, [], { type: 'snapshot' }, { type: 'other' }].forEach(one => last().deliver(one));
    expect(received).toEqual([]);
    expect(connection.state.kind).toBe('connecting');
  });

  it('waits longer after each loss until a success', async () => {
    const wait = async () => {
      last().fail();
      await settle();
      return connection.state.kind === 'lost' ? connection.state.retryAt - Date.now() : NaN;
    };
    connection.open();
    expect(await wait()).toBe(1000);
    await vi.advanceTimersByTimeAsync(1000);
    expect(connection.state.kind).toBe('connecting');
    expect(await wait()).toBe(2000);
    await vi.advanceTimersByTimeAsync(2000);
    last().accept();
    last().deliver(sample);
    expect(await wait()).toBe(1000);
    expect(Socket.opened).toHaveLength(3);
  });

  it.each([
    [404, 'missing'],
    [401, 'refused'],
    [403, 'refused'],
    [503, 'lost']
  ])('maps HTTP %d to "%s"', async (status, kind) => {
    answer = () => http(status);
    connection.open();
    last().fail();
    await settle();
    expect(connection.state.kind).toBe(kind);
  });

  it('shows a sample of a server without WebSocket access', async () => {
    const received: StreamMessage[] = [];
    connection.received.connect((_, message) => received.push(message));
    answer = () => http(200, snapshot(1000));
    connection.open();
    last().fail();
    await settle();
    expect(connection.state.kind).toBe('blocked');
    expect(received.map(message => message.type)).toEqual(['snapshot']);
  });

  it('treats long silence as a loss', async () => {
    connection.open();
    last().accept();
    last().deliver(sample);
    await vi.advanceTimersByTimeAsync(14_000);
    expect(connection.state.kind).toBe('live');
    await vi.advanceTimersByTimeAsync(1_000);
    expect(connection.state.kind).toBe('lost');
  });

  it('stays closed if it was closed during the request for a reason', async () => {
    let reply: (response: Response) => void = () => undefined;
    answer = () => new Promise(resolve => (reply = resolve));
    connection.open();
    last().fail();
    connection.close();
    reply(new Response('{}', { status: 404 }));
    await vi.advanceTimersByTimeAsync(60_000);
    expect(connection.state.kind).toBe('idle');
    expect(Socket.opened).toHaveLength(1);
  });

  it('reconnects immediately on request', async () => {
    connection.open();
    last().fail();
    await settle();
    connection.retry();
    expect(connection.state.kind).toBe('connecting');
    await vi.advanceTimersByTimeAsync(900);
    expect(Socket.opened).toHaveLength(2);
  });

  it('sends a changed interval, also after a change while connecting', () => {
    connection.open();
    connection.interval = 5;
    last().accept();
    connection.interval = 10;
    expect(last().sent.map(text => JSON.parse(text))).toEqual([
      { type: 'interval', seconds: 5 },
      { type: 'interval', seconds: 10 }
    ]);
  });

  it('closes its socket and ignores later events', () => {
    connection.open();
    const socket = last();
    socket.accept();
    connection.close();
    expect(socket.readyState).toBe(3);
    expect(socket.onmessage).toBeNull();
    expect(connection.state.kind).toBe('idle');
  });
});
