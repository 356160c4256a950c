import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';

import { isPastAnswer, isSnapshot } from './snapshot';
import type { PastAnswer, Snapshot } from './snapshot';
import { trans } from './translation';

const ROUTES = 'hpu_magic';

/** An error returned by the server, with its HTTP status. */
export class ServerError extends Error {
  constructor(
    readonly status: number,
    message: string
  ) {
    super(message);
  }
}

/** Return the message of an error. */
export function reasonOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

async function request(
  settings: ServerConnection.ISettings,
  path: string[],
  init: RequestInit = {}
): Promise<Response> {
  const url = URLExt.join(settings.baseUrl, ROUTES, ...path);
  const response = await ServerConnection.makeRequest(url, init, settings);
  if (!response.ok) {
    const body: unknown = await response.json().catch(() => null);
    const message =
      typeof body === 'object' && body !== null && 'message' in body ? String(body.message) : '';
    throw new ServerError(
      response.status,
      message || trans.__('The server responded with status %1.', response.status)
    );
  }
  return response;
}

/** Request the current state of all cards. */
export async function fetchSnapshot(settings: ServerConnection.ISettings): Promise<Snapshot> {
  const answer: unknown = await (await request(settings, ['snapshot'])).json();
  if (!isSnapshot(answer)) {
    throw new ServerError(200, trans.__('The response is not a snapshot of cards.'));
  }
  return answer;
}

/** Request the last day's history that is newer than `since`, in seconds since the epoch. */
export async function fetchPast(
  settings: ServerConnection.ISettings,
  since: number
): Promise<PastAnswer> {
  const answer: unknown = await (await request(settings, [`history?since=${since}`])).json();
  if (!isPastAnswer(answer)) {
    throw new ServerError(200, trans.__('The response is not a history of cards.'));
  }
  return answer;
}

/** Shut down this server's kernel `kernelId` if it still holds HPU `moduleId`. */
export async function shutDownHolder(
  settings: ServerConnection.ISettings,
  moduleId: number,
  kernelId: string,
  ...part: string[]
): Promise<void> {
  const path = ['cards', String(moduleId), 'holders', encodeURIComponent(kernelId), ...part];
  await request(settings, path, { method: 'DELETE' });
}

/** Stop the fit in this server's kernel `kernelId` if it still holds HPU `moduleId`. */
export function stopFit(
  settings: ServerConnection.ISettings,
  moduleId: number,
  kernelId: string
): Promise<void> {
  return shutDownHolder(settings, moduleId, kernelId, 'fit');
}

/** Return the URL of a stream of samples that are `interval` seconds apart. */
export function streamUrl(settings: ServerConnection.ISettings, interval: number): string {
  const url = URLExt.join(settings.wsUrl, ROUTES, 'stream');
  const query = new URLSearchParams({ interval: String(interval) });
  if (settings.appendToken && settings.token !== '') {
    query.set('token', settings.token);
  }
  return `${url}?${query.toString()}`;
}
